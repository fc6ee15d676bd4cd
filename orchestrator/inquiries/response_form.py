"""The form of a response, made from the question's schema; each face gives it its widgets.

The schema itself checks what was entered; the form only turns it into JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from django import forms

from orchestrator.core.json_field import JSONField
from orchestrator.core.redaction import defaults_to_fill_in, is_name_of_secret
from orchestrator.inquiries import questions
from orchestrator.inquiries.models import Inquiry

WHOLE = "response"
"""The field of a response whose schema names no properties."""
PREFIX = "p-"
"""Of the fields: a property may be called as a method of forms."""
LONG_TEXT = 200

Schema = Mapping[str, Any]
Widget = Callable[[], forms.Widget]


@dataclass(frozen=True)
class Widgets:
    """The widgets that a face draws for each kind of value."""

    text: Widget = forms.TextInput
    long_text: Widget = forms.Textarea
    secret: Widget = forms.PasswordInput
    choice: Widget = forms.Select
    json: Widget = forms.Textarea


class ResponseForm(forms.Form):
    """A field for each property of the schema; without any, one for all of it as JSON."""

    widgets: ClassVar[Widgets] = Widgets()

    def __init__(self, *args: Any, inquiry: Inquiry, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.inquiry = inquiry
        self.response: Any = None
        defaults = defaults_to_fill_in(inquiry.schema)
        properties = {
            name: {key: of[key] for key in of if key != "default" or name in defaults}
            for name, of in _properties(inquiry.schema).items()
        }
        required = inquiry.schema.get("required")
        for name, schema in properties.items():
            field = _field(name, schema, self.widgets)
            field.label = str(schema.get("title") or name)
            field.help_text = str(schema.get("description") or field.help_text)
            field.required = False  # the schema says so itself, in its own words
            if isinstance(required, list) and name in required:
                field.label += " *"
            self.fields[PREFIX + name] = field
        if not properties:
            self.fields[WHOLE] = _json_field("A JSON object.", self.widgets)

    def clean(self) -> dict[str, Any]:
        """Make the response, and have the schema check it."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if self.errors:
            return cleaned
        if WHOLE in cleaned:
            self.response = {} if cleaned[WHOLE] is None else cleaned[WHOLE]
        else:
            self.response = {
                name.removeprefix(PREFIX): value
                for name, value in cleaned.items()
                if value not in (None, "")
            }
        for problem in questions.response_problems(self.inquiry.schema, self.response):
            top = problem.pointer.removeprefix("/").partition("/")[0]
            name = PREFIX + top if PREFIX + top in self.fields else None
            self.add_error(name, f"{problem.pointer}: {problem.message}".removeprefix(": "))
        return cleaned


def _properties(schema: Schema) -> dict[str, Schema]:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    return {name: each if isinstance(each, dict) else {} for name, each in properties.items()}


def _field(name: str, schema: Schema, widgets: Widgets) -> forms.Field:
    choices = schema.get("enum")
    if isinstance(choices, list) and choices:
        return _choice({json.dumps(each): str(each) for each in choices}, schema, widgets)
    match schema.get("type"):
        case "boolean":
            return _choice({"true": "yes", "false": "no"}, schema, widgets)
        case "integer" | "number":
            return _Number(widget=widgets.text(), initial=schema.get("default"))
        case "string":
            return _text(name, schema, widgets)
        case _:
            return _json_field("As JSON.", widgets, schema.get("default"))


def _text(name: str, schema: Schema, widgets: Widgets) -> forms.Field:
    is_secret = schema.get("secret") is True or schema.get("writeOnly") is True
    if is_secret or is_name_of_secret(name):
        return forms.CharField(widget=widgets.secret(), strip=False)
    is_long = schema.get("maxLength", 0) > LONG_TEXT
    widget = widgets.long_text() if is_long else widgets.text()
    return forms.CharField(widget=widget, initial=schema.get("default"))


def _choice(choices: Mapping[str, str], schema: Schema, widgets: Widgets) -> forms.Field:
    return forms.TypedChoiceField(
        choices=[("", "—"), *choices.items()],
        coerce=json.loads,
        empty_value=None,
        widget=widgets.choice(),
        initial=json.dumps(schema["default"]) if "default" in schema else "",
    )


def _json_field(help_text: str, widgets: Widgets, initial: Any = None) -> forms.Field:
    return JSONField(required=False, widget=widgets.json(), help_text=help_text, initial=initial)


class _Number(forms.CharField):
    """A number as JSON writes it; anything else is left to the schema, which names it."""

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value)
        try:
            number = json.loads(text) if text else None
        except (ValueError, RecursionError):
            return text
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        return number if is_number else text
