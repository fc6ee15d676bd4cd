"""Form fields of what is granted, and where."""

from __future__ import annotations

import re
from typing import Any

from django import forms
from unfold.forms import BaseDialogForm
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from orchestrator.access import grants
from orchestrator.access.grants import Given
from orchestrator.core.frame import ROLES

BETWEEN = re.compile(r"[\s,]+")


def words(text: str) -> list[str]:
    """The words that stand between commas and blanks."""
    return [word for word in BETWEEN.split(text) if word]


def choices() -> list[Any]:
    """Roles, and then single permissions."""
    return [
        ("Roles", [(role, role) for role in ROLES]),
        ("Single permissions", [(name, name) for name in grants.permissions()]),
    ]


def text_field(label: str, help_text: str) -> forms.CharField:
    """A field that may stay empty."""
    return forms.CharField(
        required=False, label=label, help_text=help_text, widget=UnfoldAdminTextInputWidget
    )


class ScopeFields(forms.Form):
    """The places where a grant holds; nothing means everywhere."""

    packs = text_field("Only packs", "Names, by commas; * stands for any characters: billing-*")
    namespaces = text_field("Only namespaces", "Of templates, likewise.")
    labels = text_field("Only workers with", "Labels, by commas: zone=b, gpu=yes")

    def clean_labels(self) -> dict[str, str]:
        labels = {}
        for word in words(self.cleaned_data["labels"]):
            key, sign, value = word.partition("=")
            if not (key and sign and value):
                raise forms.ValidationError(f"Expected key=value, found {word!r}.")
            labels[key] = value
        return labels


def given(gives: str, cleaned: dict[str, Any]) -> Given:
    """The grant that the form names. Raises ValidationError."""
    try:
        return grants.check(
            gives,
            packs=words(cleaned.get("packs", "")),
            namespaces=words(cleaned.get("namespaces", "")),
            labels=cleaned.get("labels") or {},
        )
    except grants.InvalidGrant as error:
        raise forms.ValidationError(str(error)) from None


class GrantForm(ScopeFields, BaseDialogForm):
    """A role or a permission to give."""

    gives = forms.ChoiceField(
        choices=choices, label="Role or permission", widget=UnfoldAdminSelectWidget
    )
    field_order = ("gives", "packs", "namespaces", "labels")

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if "gives" in cleaned and "labels" in cleaned:
            try:
                cleaned["given"] = given(cleaned["gives"], cleaned)
            except forms.ValidationError as error:
                self.add_error("gives", error)  # the dialog shows the errors of fields only
        return cleaned
