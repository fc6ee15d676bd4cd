"""Tokens in the admin: make, rotate, revoke."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.safestring import SafeString
from unfold.decorators import action, display
from unfold.enums import ActionVariant
from unfold.widgets import (
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectMultipleWidget,
    UnfoldAdminSelectWidget,
)

from orchestrator.access import identities, shown, tokens
from orchestrator.access.admin.forms import ScopeFields, choices, given, text_field, words
from orchestrator.access.authorizer import Identified
from orchestrator.access.models import ApiToken, Identity
from orchestrator.core import clock
from orchestrator.core.admin import render
from orchestrator.core.admin.read_only import AddableAdmin, Section, go_to
from orchestrator.core.authority import Principal
from orchestrator.core.errors import MusterError

HOME = "admin:access_apitoken_changelist"
MOST_DAYS = tokens.LONGEST_LIFETIME.days


class ApiTokenForm(ScopeFields, forms.ModelForm):
    """A new token: whose it is, what it may do of what its owner may, and for how long."""

    owner = forms.ModelChoiceField(
        queryset=Identity.objects.none(),
        required=False,
        widget=UnfoldAdminSelectWidget,
        help_text="Empty: yourself.",
    )
    gives = forms.MultipleChoiceField(
        choices=choices,
        required=False,
        label="Narrowed to",
        widget=UnfoldAdminSelectMultipleWidget,
        help_text="What it may do of what its owner may; nothing chosen: all of that.",
    )
    networks = text_field("Accepted from", "Networks, by commas: 10.1.0.0/16. Empty: anywhere.")
    days = forms.IntegerField(
        min_value=1,
        max_value=MOST_DAYS,
        initial=tokens.LIFETIME.days,
        label="Expires in days",
        widget=UnfoldAdminIntegerFieldWidget,
        help_text=f"At most {MOST_DAYS}.",
    )

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if "labels" in cleaned:
            cleaned["only"] = [given(gives, cleaned) for gives in cleaned.get("gives", ())] or None
        return cleaned


@admin.register(ApiToken)
class ApiTokenAdmin(AddableAdmin):
    """Everybody's tokens for who has `tokens.manage`, one's own for who has `tokens.own`."""

    view_permission = "tokens.own"
    add_permission = "tokens.own"
    form = ApiTokenForm
    add_form_template = "admin/change_form.html"
    list_display = ("name", "starts_with", "state_label", "owner", "last_used", "expires")
    search_fields = ("name", "prefix")
    actions_detail = ("rotate", "revoke")

    def get_queryset(self, request: HttpRequest) -> QuerySet[ApiToken]:
        rows: QuerySet[ApiToken] = super().get_queryset(request).select_related("identity__user")
        return rows if self._manages(request) else rows.filter(identity=self._own_id(request))

    def _manages(self, request: HttpRequest) -> bool:
        return self.may(request, "tokens.manage")

    def _own_id(self, request: HttpRequest) -> int | None:
        principal = self.principal(request)
        return principal.identity_id if isinstance(principal, Identified) else None

    # --- creating: the token is only in this response, not in a message or a session

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        if obj:
            return ()
        owner = ("owner",) if self._manages(request) else ()
        return ("name", *owner, "gives", "packs", "namespaces", "labels", "networks", "days")

    def get_form(self, request: HttpRequest, obj: Any = None, **kwargs: Any) -> Any:
        form = super().get_form(request, obj, **kwargs)
        if self._manages(request):
            form.base_fields["owner"].queryset = Identity.objects.in_order()
        else:
            form.base_fields.pop("owner", None)
        return form

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        now = clock.now()
        cleaned = form.cleaned_data
        owner = cleaned.get("owner") or identities.of_user(request.user.get_username(), now=now)
        created, secret = tokens.create(
            name=obj.name,
            owner=owner,
            by=self.principal(request),
            only=cleaned["only"],
            networks=words(cleaned["networks"]),
            lifetime=timedelta(days=cleaned["days"]),
            now=now,
        )
        obj.pk, obj.prefix, obj.identity, obj.shown_once = (
            created.pk, created.prefix, owner, secret,
        )  # fmt: skip

    def response_add(
        self, request: HttpRequest, obj: Any, post_url_continue: str | None = None
    ) -> HttpResponse:
        return self._show_text(request, obj, obj.shown_once)

    def _show_text(self, request: HttpRequest, token: ApiToken, text: str) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": f"Token {token.name}",
            "opts": self.opts,
            "text": text,
        }
        response = TemplateResponse(request, "access/admin/token_created.html", context)
        response["Cache-Control"] = "no-store"
        return response

    # --- columns

    @display(description="Starts with")
    def starts_with(self, token: ApiToken) -> SafeString:
        return render.mono(f"{token.prefix}…")

    @display(description="State", label=tokens.KINDS)
    def state_label(self, token: ApiToken) -> str:
        return tokens.state(token, now=token.as_of)  # type: ignore[attr-defined]

    @display(description="Owner")
    def owner(self, token: ApiToken) -> str:
        return str(token.identity)

    @display(description="Last used")
    def last_used(self, token: ApiToken) -> SafeString | str:
        return render.moment(token.last_used_at) or "never"

    @display(description="Expires")
    def expires(self, token: ApiToken) -> SafeString | str:
        return render.moment(token.expires_at) or "never"

    def sections(self, obj: ApiToken, now: datetime, *, seen_by: Principal) -> list[Section]:
        current = tokens.state(obj, now=now)
        narrowed = shown.only(obj)
        facts: list[tuple[str, Any]] = [
            ("Name", obj.name),
            ("Starts with", render.mono(f"{obj.prefix}…")),
            ("State", render.badge(current, tokens.KINDS[current])),
            ("Owner", str(obj.identity)),
            ("May", "what its owner may" if narrowed is None else "; ".join(map(str, narrowed))),
            ("Accepted from", ", ".join(obj.networks) or "anywhere"),
            ("Created", render.moment(obj.created_at)),
            ("Created by", obj.created_by),
            ("Last used", render.moment(obj.last_used_at) or "never"),
            ("Expires", render.moment(obj.expires_at) or "never"),
        ]
        for name, at in (("Rotated", obj.superseded_at), ("Revoked", obj.revoked_at)):
            if at:
                facts.append((name, render.moment(at)))
        return [Section(facts=facts, kind=tokens.KINDS[current])]

    # --- rotating and revoking

    def has_rotate_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return self.may_act(request, "tokens.own", object_id)

    def has_revoke_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return self.may_act(request, "tokens.own", object_id)

    def buttons(self, obj: ApiToken) -> Collection[str]:
        if obj.revoked_at:
            return ()
        is_usable = tokens.state(obj, now=clock.now()) == "usable"
        return {"revoke", "rotate"} if is_usable else {"revoke"}

    @action(
        description="Rotate",
        icon="autorenew",
        permissions=["rotate"],
        dialog={
            "title": "Give this token another text?",
            "description": "The old text is accepted for one more hour.",
            "form_submit_text": "Rotate",
        },
    )
    def rotate(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        token = self.get_object(request, object_id)
        try:
            row, text = tokens.rotate(token, by=self.principal(request), now=clock.now())
        except MusterError as error:
            messages.error(request, str(error))
            return go_to(request, reverse("admin:access_apitoken_change", args=[object_id]))
        self.log_change(request, row, "Rotated.")
        return self._show_text(request, row, text)

    @action(
        description="Revoke",
        icon="key_off",
        variant=ActionVariant.DANGER,
        permissions=["revoke"],
        dialog={
            "title": "Revoke this token?",
            "description": "Requests that use it are refused from now on. This cannot be undone.",
            "form_submit_text": "Revoke",
        },
    )
    def revoke(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        token = self.get_object(request, object_id)
        tokens.revoke(token, by=self.principal(request), now=clock.now())
        self.log_change(request, token, "Revoked.")
        messages.success(request, f"{token.name} is revoked.")
        return go_to(request, reverse("admin:access_apitoken_change", args=[token.pk]))
