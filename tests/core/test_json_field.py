"""The field of forms for JSON."""

from __future__ import annotations

from typing import Any

import pytest
from django import forms
from django.utils.html import escape

from orchestrator.core.json_field import JSONField


class Form(forms.Form):
    value = JSONField(required=False)


@pytest.mark.parametrize(
    ("typed", "value"),
    [("", None), ("null", None), ('{"a": [1, 2.5]}', {"a": [1, 2.5]}), ('"text"', "text")],
)
def test_what_was_typed_is_read(typed: str, value: Any) -> None:
    form = Form({"value": typed})
    assert form.is_valid()
    assert form.cleaned_data == {"value": value}
    assert "<textarea" in str(form)


@pytest.mark.parametrize(
    ("value", "text"), [(None, ""), ({"a": None}, '{"a": null}'), (0, "0"), ("", '""')]
)
def test_null_is_an_empty_field(value: Any, text: str) -> None:
    assert Form(initial={"value": value})["value"].value() == text


@pytest.mark.parametrize(
    ("typed", "complaint"),
    [
        ("{", "line 1, column 2"),
        ("NaN", "NaN is not a JSON number"),
        ("[" * 100_000, "more than 50 levels"),
        ("[" * 51 + "]" * 51, "more than 50 levels"),
        ("9" * 5_000, "at most 4,300 digits, found 5,000"),
        ("[1e999]", "/0 is beyond"),
        ('{"a": "\\u0000"}', "/a contains a NUL character"),
    ],
)
def test_what_cannot_be_stored_is_refused_and_shown_as_it_was_typed(
    typed: str, complaint: str
) -> None:
    form = Form({"value": typed})
    assert complaint in form.errors["value"][0]
    assert escape(typed) in str(form)
