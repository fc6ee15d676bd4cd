"""Identities in the admin: service accounts and people, their grants and tokens."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.safestring import SafeString
from unfold.decorators import action, display
from unfold.enums import ActionVariant
from unfold.forms import BaseDialogForm
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from orchestrator.access import identities, tokens
from orchestrator.access.admin.forms import GrantForm
from orchestrator.access.models import ApiToken, Grant, Identity
from orchestrator.core import clock
from orchestrator.core.admin import dialogs, render
from orchestrator.core.admin.read_only import ReadOnlyAdmin, Section
from orchestrator.core.authority import Principal

HOME = "admin:access_identity_changelist"


class IdentityForm(forms.ModelForm):
    """A new service account; a user has an identity from the start."""

    service_name = forms.CharField(max_length=100, widget=UnfoldAdminTextInputWidget)

    class Meta:
        model = Identity
        fields = ("service_name", "description")

    def clean_service_name(self) -> str:
        name: str = self.cleaned_data["service_name"]
        if not identities.is_name(name) or ":" in name:
            raise forms.ValidationError(str(identities.InvalidName()))
        if Identity.objects.services().filter(service_name=name).exists():
            raise forms.ValidationError(f"A service account is called {name!r} already.")
        return name


class RevokeForm(BaseDialogForm):
    """The grant to take away."""

    grant = forms.ModelChoiceField(
        queryset=Grant.objects.none(), empty_label=None, widget=UnfoldAdminSelectWidget
    )

    def __init__(self, *args: Any, object_id: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, object_id=object_id, **kwargs)
        self.fields["grant"].queryset = Grant.objects.filter(identity=object_id)


@admin.register(Identity)
class IdentityAdmin(ReadOnlyAdmin):
    view_permission = add_permission = "access.manage"
    form = IdentityForm
    add_form_template = "admin/change_form.html"
    list_display = ("label", "state_label", "may_do", "description")
    search_fields = ("service_name", "user__username")
    actions_detail = ("grant", "revoke", "disable", "enable")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Identity]:
        rows: QuerySet[Identity] = super().get_queryset(request)
        return rows.select_related("user").prefetch_related("grants")

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return () if obj else ("service_name", "description")

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        obj.created_at = clock.now()
        super().save_model(request, obj, form, change)

    # --- columns

    @display(description="Identity")
    def label(self, identity: Identity) -> str:
        return str(identity)

    @display(description="State", label=identities.KINDS)
    def state_label(self, identity: Identity) -> str:
        return identities.state(identity)

    @display(description="May")
    def may_do(self, identity: Identity) -> str:
        return _may(identity) or "-"

    def sections(self, obj: Identity, now: datetime, *, seen_by: Principal) -> list[Section]:
        state = identities.state(obj)
        facts: list[tuple[str, Any]] = [
            ("Identity", str(obj)),
            ("State", render.badge(state, identities.KINDS[state])),
            ("May", _may(obj) or "nothing: it has no grant"),
            ("Description", obj.description),
            ("Created", render.moment(obj.created_at)),
        ]
        if obj.user is not None:
            facts.insert(1, ("User", render.link_to(obj.user)))
        granted = [
            (str(given), each.granted_by, render.moment(each.granted_at))
            for each, given in zip(obj.grants.all(), _granted(obj), strict=True)
        ]
        rows = [_token(each, now) for each in obj.tokens.all()]
        return [
            Section(facts=[fact for fact in facts if fact[1]], kind=identities.KINDS[state]),
            Section(title="Grants", body=_table(["May", "Granted by", "At"], granted)),
            Section(title="Tokens", body=_table(["Name", "State", "Last used", "Expires"], rows)),
        ]

    # --- buttons

    def has_manage_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return self.may_act(request, "access.manage", object_id)

    def buttons(self, obj: Identity) -> Collection[str]:
        useful = {"grant", "enable" if obj.is_disabled else "disable"}
        return useful | {"revoke"} if obj.grants.all() else useful

    @dialogs.button(
        "Grant",
        icon="add_moderator",
        permission="manage",
        question="Grant a role or a permission",
        explanation="It counts from the next request on. Nobody grants what they do not have.",
        submit="Grant",
        form=GrantForm,
        variant=ActionVariant.PRIMARY,
    )
    def grant(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        given = form.cleaned_data["given"]

        def verb(identity: Identity) -> None:
            identities.grant(identity, given, by=self.principal(request), now=clock.now())

        return self._do(request, object_id, verb, f"Granted: {given}.")

    @dialogs.button(
        "Revoke a grant",
        icon="remove_moderator",
        permission="manage",
        question="Take a grant away",
        explanation="It counts from the next request on.",
        submit="Revoke",
        form=RevokeForm,
        variant=ActionVariant.WARNING,
    )
    def revoke(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        chosen = form.cleaned_data["grant"]

        def verb(identity: Identity) -> None:
            identities.revoke(identity, [chosen], by=self.principal(request))

        return self._do(request, object_id, verb, f"Revoked: {chosen.gives}.")

    @action(
        description="Disable",
        icon="block",
        variant=ActionVariant.DANGER,
        permissions=["manage"],
        dialog={
            "title": "Disable this identity?",
            "description": "Its tokens are refused from now on, and a person's sessions end.",
            "form_submit_text": "Disable",
        },
    )
    def disable(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        def verb(identity: Identity) -> None:
            identities.disable(identity, by=self.principal(request), now=clock.now())

        return self._do(request, object_id, verb, "Disabled.")

    @action(
        description="Enable",
        icon="check_circle",
        variant=ActionVariant.SUCCESS,
        permissions=["manage"],
        dialog={
            "title": "Enable this identity?",
            "description": "Its tokens that are neither revoked nor expired are accepted again.",
            "form_submit_text": "Enable",
        },
    )
    def enable(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        def verb(identity: Identity) -> None:
            identities.enable(identity, by=self.principal(request))

        return self._do(request, object_id, verb, "Enabled.")

    def _do(
        self, request: HttpRequest, object_id: str, verb: Callable[[Identity], None], done: str
    ) -> HttpResponse:
        identity: Any = self.get_object(request, object_id)

        def do() -> None:
            verb(identity)
            self.log_change(request, identity, done)

        return dialogs.do(request, identity, do, f"{identity}: {done}", home=HOME)


def _granted(identity: Identity) -> list[Any]:
    return [identities.given_by(each) for each in identity.grants.all()]


def _may(identity: Identity) -> str:
    own = ["admin, as a superuser"] if identity.is_superuser else []
    return "; ".join([*own, *map(str, _granted(identity))])


def _token(token: ApiToken, now: datetime) -> tuple[Any, ...]:
    state = tokens.state(token, now=now)
    return (
        render.link(reverse("admin:access_apitoken_change", args=[token.pk]), token.name),
        render.badge(state, tokens.KINDS[state]),
        render.moment(token.last_used_at) or "never",
        render.moment(token.expires_at) or "never",
    )


def _table(headers: list[str], rows: list[Any]) -> SafeString | str:
    return render.table(headers, rows) if rows else "none"
