"""Who may come in: API tokens, users, groups."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin
from unfold.decorators import action, display
from unfold.enums import ActionVariant
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from orchestrator.access import tokens
from orchestrator.access.models import ApiToken
from orchestrator.core import clock
from orchestrator.core.admin import render
from orchestrator.core.admin.read_only import ReadOnlyAdmin, Section, go_to
from orchestrator.core.errors import MusterError


class ApiTokenForm(forms.ModelForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "expires_at" in self.fields:
            zone = timezone.get_current_timezone_name()
            self.fields["expires_at"].help_text = f"In {zone}; empty: never."

    def clean_expires_at(self) -> datetime | None:
        expires_at: datetime | None = self.cleaned_data["expires_at"]
        if expires_at and expires_at <= clock.now():
            raise forms.ValidationError("This is past: expected a later time, or none.")
        return expires_at


@admin.register(ApiToken)
class ApiTokenAdmin(ReadOnlyAdmin):
    form = ApiTokenForm
    add_form_template = "admin/change_form.html"
    list_display = ("name", "starts_with", "state_label", "created", "last_used", "expires")
    search_fields = ("name", "prefix")
    actions_detail = ("revoke",)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return () if obj else ("name", "expires_at")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("access.add_apitoken"))

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        buttons = {"show_save_and_continue": False, "show_save_and_add_another": False}
        try:
            response: HttpResponse = super().add_view(request, form_url, extra_context or buttons)
        except MusterError as error:
            messages.error(request, str(error))
            return HttpResponseRedirect(request.get_full_path())
        return response

    # --- creating: the token is in this one response and nowhere else, no message or session

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        created, secret = tokens.create(name=obj.name, now=clock.now(), expires_at=obj.expires_at)
        obj.pk, obj.prefix, obj.shown_once = created.pk, created.prefix, secret

    def response_add(
        self, request: HttpRequest, obj: Any, post_url_continue: str | None = None
    ) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": f"Token {obj.name}",
            "opts": self.opts,
            "token": obj,
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

    @display(description="Created")
    def created(self, token: ApiToken) -> SafeString | None:
        return render.moment(token.created_at)

    @display(description="Last used")
    def last_used(self, token: ApiToken) -> SafeString | str:
        return render.moment(token.last_used_at) or "never"

    @display(description="Expires")
    def expires(self, token: ApiToken) -> SafeString | str:
        return render.moment(token.expires_at) or "never"

    def sections(self, obj: ApiToken, now: datetime) -> list[Section]:
        current = tokens.state(obj, now=now)
        facts: list[tuple[str, Any]] = [
            ("Name", obj.name),
            ("Starts with", render.mono(f"{obj.prefix}…")),
            ("State", render.badge(current, tokens.KINDS[current])),
            ("Created", render.moment(obj.created_at)),
            ("Last used", render.moment(obj.last_used_at) or "never"),
            ("Expires", render.moment(obj.expires_at) or "never"),
        ]
        if obj.revoked_at:
            facts.append(("Revoked", render.moment(obj.revoked_at)))
        return [Section(facts=facts, kind=tokens.KINDS[current])]

    # --- revoking

    def has_revoke_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return self.may_change(request)

    def get_actions_detail(self, request: HttpRequest, object_id: Any) -> list[Any]:
        """A revoked token cannot be revoked again."""
        found = self.get_object(request, object_id)
        if found is None or found.revoked_at:
            return []
        allowed: list[Any] = super().get_actions_detail(request, object_id)
        return allowed

    @action(
        description="Revoke",
        icon="key_off",
        variant=ActionVariant.DANGER,
        permissions=["revoke"],
        dialog={
            "title": "Revoke this token?",
            "description": "Whoever uses it is refused from now on. This cannot be undone.",
            "form_submit_text": "Revoke",
        },
    )
    def revoke(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        token = self.get_object(request, object_id)
        if token is None:
            messages.error(request, f"There is no token {object_id}.")
            return go_to(request, reverse("admin:access_apitoken_changelist"))
        try:
            tokens.revoke(token, now=clock.now())
        except MusterError as error:
            messages.error(request, str(error))
        else:
            self.log_change(request, token, "Revoked.")
            messages.success(request, f"{token.name} is revoked.")
        return go_to(request, reverse("admin:access_apitoken_change", args=[token.pk]))


admin.site.unregister(User)
admin.site.unregister(Group)


@admin.register(User)
class UserAdmin(DjangoUserAdmin, ModelAdmin):
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm


@admin.register(Group)
class GroupAdmin(DjangoGroupAdmin, ModelAdmin):
    pass
