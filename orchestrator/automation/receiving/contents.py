"""The contents of a delivery whose signature is valid: JSON, or a form."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from orchestrator.automation.hooks.deliveries import Delivery, Unreadable
from orchestrator.core import json_values

FORM = "application/x-www-form-urlencoded"
MOST_FIELDS = 1_000
LONGEST_HEADER = 1_000
JSON_FIELD = "payload"
"""GitHub, and buttons of Slack, send their JSON in this field of a form."""

EXPECTED = f"Expected Content-Type: application/json, or {FORM}"


class WrongType(Unreadable):
    """The body is neither JSON nor a form."""

    status, kind, title = 415, "unsupported-media-type", "Unsupported media type"


def parsed(delivery: Delivery) -> Any:
    """The body: JSON, the fields of a form, or None if there is nothing. Raises Unreadable."""
    if not delivery.body:
        return None
    given = delivery.header("content-type")
    kind = given.partition(";")[0].strip().lower()
    if kind == FORM:
        return _of_form(delivery.body)
    if kind != "application/json" and not (
        kind.startswith("application/") and kind[-5:] == "+json"
    ):
        raise WrongType(f"{EXPECTED}, found {given[:100]!r}")
    return _stored(_loaded(delivery.body))


def headers(delivery: Delivery, names: Iterable[str]) -> dict[str, str]:
    """The headers that the event has, in the order of their names."""
    given = {name: delivery.header(name)[:LONGEST_HEADER] for name in sorted(names)}
    return {name: value.replace("\0", "") for name, value in given.items() if value}


def payload(delivery: Delivery, body: Any, names: Iterable[str]) -> dict[str, Any]:
    """The payload of the event."""
    return {"body": body, "headers": headers(delivery, names)}


def _loaded(body: bytes) -> Any:
    try:
        return json_values.read(body.removeprefix(BOM_UTF8))
    except (json_values.Malformed, json_values.Unreadable) as error:
        raise Unreadable(f"Expected JSON: {error}") from None


def _of_form(body: bytes) -> Any:
    """The fields of a form; of one with several values, a list of them."""
    try:
        pairs = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=True,
            errors="strict",
            max_num_fields=MOST_FIELDS,
        )
    except ValueError as error:
        raise Unreadable(f"Expected the fields of a form: {error}") from None
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name not in fields:
            fields[name] = value
        elif isinstance(fields[name], list):
            fields[name].append(value)
        else:
            fields[name] = [fields[name], value]
    return _stored(_with_json(fields))


def _with_json(fields: Mapping[str, Any]) -> Any:
    """The JSON of a form that has nothing else; else the fields, as they are."""
    text = fields.get(JSON_FIELD)
    if len(fields) != 1 or not isinstance(text, str) or text[:1] not in ("{", "["):
        return dict(fields)
    return _loaded(text.encode())


def _stored(value: Any) -> Any:
    """The same, if a database can store it."""
    for place, what in json_values.faults(value):
        raise Unreadable(f"The body{f' at {place}' if place else ''} {what}")
    return value
