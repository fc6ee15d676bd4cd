"""JSON in forms."""

from __future__ import annotations

from typing import Any

from django import forms
from django.forms.fields import InvalidJSONInput

from orchestrator.core import json_values


class JSONField(forms.JSONField):
    """A field that reads what the API reads. Django's lets errors through that Python's parser has
    besides those of syntax, and takes what no database can store."""

    def to_python(self, value: Any) -> Any:
        if not isinstance(value, str) or value in self.empty_values:
            return super().to_python(value)
        try:
            found = json_values.read(value.encode("utf-8", "replace"))
        except (json_values.Malformed, json_values.Unreadable) as error:
            raise forms.ValidationError(f"Expected JSON: {error}.") from None
        for place, what in json_values.faults(found):
            raise forms.ValidationError(f"{place or 'The whole'} {what}.")
        return found

    def prepare_value(self, value: Any) -> Any:
        """The text of a value; none for null, as a field that is left empty is null."""
        return "" if value is None else super().prepare_value(value)

    def bound_data(self, data: Any, initial: Any) -> Any:
        """The text that the form shows again; as it was typed if it is refused."""
        try:
            self.to_python(data)
        except forms.ValidationError:
            return InvalidJSONInput(data)
        return super().bound_data(data, initial)
