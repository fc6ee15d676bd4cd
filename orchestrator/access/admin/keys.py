"""Admin of keys: created, rotated and revoked here, and never shown."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString
from unfold.decorators import display
from unfold.enums import ActionVariant
from unfold.forms import BaseDialogForm
from unfold.widgets import UnfoldAdminTextareaWidget, UnfoldAdminTextInputWidget

from orchestrator.access import keys
from orchestrator.access.keys import shown
from orchestrator.access.models import Key
from orchestrator.core import clock
from orchestrator.core.admin import dialogs, render
from orchestrator.core.admin.read_only import AddableAdmin, Section
from orchestrator.core.authority import Principal

LEAST_TO_MOST = (
    f"{keys.LEAST_CHARACTERS} characters to {keys.LONGEST_BYTES:,} bytes. Not shown again."
)


class WriteOnly(UnfoldAdminTextareaWidget):
    """A field that never goes back to the browser, as it does in a form with an error in it."""

    def __init__(self) -> None:
        super().__init__(attrs={"rows": 3, "autocomplete": "off", "spellcheck": "false"})

    def format_value(self, value: Any) -> str:
        return ""


def _value() -> forms.CharField:
    return forms.CharField(widget=WriteOnly, strip=False, help_text=LEAST_TO_MOST)


class KeyForm(forms.ModelForm):
    reference = forms.CharField(
        max_length=121,
        widget=UnfoldAdminTextInputWidget,
        help_text="PACK/NAME, or installation/NAME: as parameters refer to it.",
    )
    value = _value()
    for_packs = forms.CharField(
        required=False,
        label="Packs",
        widget=UnfoldAdminTextInputWidget,
        help_text="For a key of the installation: packs whose actions may get it, by commas.",
    )

    def clean_reference(self) -> keys.Reference:
        try:
            return keys.Reference.read(self.cleaned_data["reference"], user="")
        except keys.InvalidReference as error:
            raise forms.ValidationError(str(error)) from None


class RotateForm(BaseDialogForm):
    value = _value()


@admin.register(Key)
class KeyAdmin(AddableAdmin):
    """The keys within reach; changed by who has `keys.manage` there."""

    view_permission = "keys.read"
    add_permission = "keys.manage"
    form = KeyForm
    add_form_template = "admin/change_form.html"
    list_display = ("reference", "state_label", "whom", "description", "changed")
    list_filter = ("scope",)
    list_filter_submit = False
    search_fields = ("name", "owner", "description")
    actions_detail = ("rotate", "revoke")

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return () if obj else ("reference", "value", "for_packs", "description")

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        given = form.cleaned_data
        packs = [pack.strip() for pack in given["for_packs"].split(",") if pack.strip()]
        new = keys.NewKey(
            reference=given["reference"],
            value=given["value"],
            packs=packs,
            description=given["description"],
        )
        created = keys.create(new, by=self.principal(request), now=clock.now())
        for field in Key._meta.concrete_fields:
            setattr(obj, field.attname, getattr(created, field.attname))

    # --- columns

    @display(description="Key")
    def reference(self, key: Key) -> SafeString:
        return render.mono(key)

    @display(description="State", label=shown.KINDS)
    def state_label(self, key: Key) -> str:
        return shown.state(key)

    @display(description="For")
    def whom(self, key: Key) -> str:
        return shown.whom(key)

    @display(description="Value set")
    def changed(self, key: Key) -> SafeString | None:
        return render.moment(key.changed_at)

    def sections(self, obj: Key, now: datetime, *, seen_by: Principal) -> list[Section]:
        return [Section(facts=render.facts(shown.facts(obj)), kind=shown.KINDS[shown.state(obj)])]

    # --- buttons

    def has_change_value_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return self.may_act(request, "keys.manage", object_id)

    def buttons(self, obj: Key) -> Collection[str]:
        return () if obj.revoked_at else self.actions_detail

    @dialogs.button(
        "Rotate",
        icon="autorenew",
        permission="change_value",
        question="Give it another value?",
        explanation="Executions that are claimed from now on get it. The old one is gone.",
        submit="Rotate",
        form=RotateForm,
    )
    def rotate(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        key = self.get_object(request, object_id)

        def rotate() -> None:
            reference = keys.Reference.of(key)
            value = form.cleaned_data["value"]
            keys.rotate(reference, value=value, by=self.principal(request), now=clock.now())
            self.log_change(request, key, "Rotated.")

        home = "admin:access_key_changelist"
        return dialogs.do(request, key, rotate, f"{key} has another value.", home=home)

    @dialogs.button(
        "Revoke",
        icon="key_off",
        permission="change_value",
        question="Revoke this key?",
        explanation="Its value is destroyed. Executions that refer to it end with key_refused.",
        submit="Revoke",
        form=BaseDialogForm,
        variant=ActionVariant.DANGER,
    )
    def revoke(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        key = self.get_object(request, object_id)

        def revoke() -> None:
            reference = keys.Reference.of(key)
            keys.revoke(reference, by=self.principal(request), now=clock.now())
            self.log_change(request, key, "Revoked.")

        home = "admin:access_key_changelist"
        return dialogs.do(request, key, revoke, f"{key} is revoked.", home=home)
