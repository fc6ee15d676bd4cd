"""Fields of a form for the parameters that a JSON Schema describes, and what was typed in them.

A field that is left empty is not given. What has no field of its own kind is typed as JSON. The
schema is not checked here: what accepts the request does that, on every face.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.core import json_values, key_references, redaction
from orchestrator.core.redaction import REDACTED

PREFIX = "p:"
"""Of the names of inputs: a property's name follows."""
OTHERS = ""
"""The name of the field for properties that the schema does not name."""
FIELDS_MAX = 200
"""Properties with a field; those beyond are typed among the others."""
CHOICES_MAX = 500
HINT_MAX = 300

NUMBER = re.compile(r"-?(0|[1-9]\d{0,400})(\.\d{1,400})?([eE][-+]?\d{1,3})?")

BOUNDS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {}",
    "maxItems": "at most {}",
    "pattern": "matches {}",
    "format": "{}",
}
"""Keywords that a field's hint says in words."""


class Kind(enum.StrEnum):
    """The control of a field."""

    TEXT = "text"
    NUMBER = "number"
    CHOICE = "choice"
    TEXTS = "texts"
    """One a line."""
    SECRET = "secret"  # noqa: S105 - the name of a control
    JSON = "json"


@dataclass
class Field:
    """A property: its control, what it is for, what was typed, and what was refused of it."""

    name: str
    kind: Kind
    schema: Any = True
    hint: str = ""
    is_required: bool = False
    choices: Sequence[str] = ()
    """Values as JSON."""
    is_secret: bool = False
    typed: str = ""
    refusals: list[str] = field(default_factory=list)

    @property
    def input(self) -> str:
        """The name of its input."""
        return f"{PREFIX}{self.name}"

    @property
    def title(self) -> str:
        return self.name if self.name != OTHERS else "Other parameters"

    @property
    def pointer(self) -> str:
        return json_values.pointer(["parameters", *([self.name] if self.name else [])])

    @property
    def schema_text(self) -> str:
        """The schema beside a field for JSON; empty if it says nothing."""
        if self.kind is not Kind.JSON or self.schema in (True, {}):
            return ""
        return json.dumps(self.schema, indent=2, ensure_ascii=False)


class NotRead(Exception):
    """The input cannot be read; the text says why."""


def fields(schema: Any) -> list[Field]:
    """A field for each property that the schema names, and one for others if it allows any."""
    schema = schema if isinstance(schema, Mapping) else {}
    properties = schema.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    required = schema.get("required")
    required = set(required) if isinstance(required, list) else set()
    shown = redaction.redacted_schema({**schema, "properties": properties})["properties"]
    found = [
        _field(str(name), each, schema, shown[name], is_required=name in required)
        for name, each in list(properties.items())[:FIELDS_MAX]
    ]
    is_closed = schema.get("additionalProperties") is False
    if not is_closed or "patternProperties" in schema or len(properties) > FIELDS_MAX:
        about = "A JSON object" if found else "All parameters, as a JSON object"
        found.append(Field(OTHERS, Kind.JSON, hint=f'{about}, such as {{"message": "hello"}}.'))
    return found


def _field(name: str, schema: Any, whole: Any, shown: Any, *, is_required: bool) -> Field:
    is_secret = redaction.secret_depth([name], schema=whole) is not None
    kind, choices = _kind(schema)
    if is_secret and kind in (Kind.TEXT, Kind.NUMBER):
        kind = Kind.SECRET
    hint = _hint(shown, kind) if isinstance(shown, Mapping) else ""
    return Field(name, kind, shown, hint, is_required, choices, is_secret)


def _kind(schema: Any) -> tuple[Kind, Sequence[str]]:
    if not isinstance(schema, Mapping):
        return Kind.JSON, ()
    enum_values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(enum_values, list) and len(enum_values) <= CHOICES_MAX:
        return Kind.CHOICE, [json.dumps(each, ensure_ascii=False) for each in enum_values]
    match schema.get("type"):
        case "string":
            return Kind.TEXT, ()
        case "number" | "integer":
            return Kind.NUMBER, ()
        case "boolean":
            return Kind.CHOICE, ["true", "false"]
        case "array":
            items = schema.get("items")
            of_texts = isinstance(items, Mapping) and items.get("type") == "string"
            return (Kind.TEXTS if of_texts else Kind.JSON), ()
    return Kind.JSON, ()


def _hint(schema: Mapping[str, Any], kind: Kind) -> str:
    parts = [str(schema["description"])] if schema.get("description") else []
    if kind is Kind.TEXTS:
        parts.append("One a line, or a JSON array.")
    words = [str(schema["type"])] if isinstance(schema.get("type"), str) else []
    words += [text.format(schema[name]) for name, text in BOUNDS.items() if name in schema]
    if "default" in schema:
        words.append(f"without one: {json.dumps(schema['default'], ensure_ascii=False)}")
    hint = " ".join([*parts, f"({'; '.join(words)})" if words else ""]).strip()
    return hint if len(hint) <= HINT_MAX else f"{hint[:HINT_MAX]}…"


# --- filling -------------------------------------------------------------------------------------


def fill(found: Sequence[Field], values: Any) -> None:
    """Write values into the fields, but for secrets, which `values` has as `***`."""
    rest = dict(values) if isinstance(values, Mapping) else {}
    for each in found:
        if each.name == OTHERS:
            continue
        if each.name in rest:
            value = rest.pop(each.name)
            each.typed = "" if each.is_secret else _typed(each, value)
    rest = _without_secrets(rest)
    for each in found:
        if each.name == OTHERS and rest:
            each.typed = _as_json(rest)


def _typed(to: Field, value: Any) -> str:
    value = _without_secrets(value)
    if value is None and to.kind is not Kind.CHOICE:
        return ""
    if to.kind is Kind.TEXT and isinstance(value, str):
        return value
    if to.kind is Kind.TEXTS and isinstance(value, list) and all(map(_is_a_line, value)):
        return "\n".join(value)
    if to.kind is Kind.CHOICE:
        return json.dumps(value, ensure_ascii=False)
    return _as_json(value)


def _is_a_line(value: Any) -> bool:
    return isinstance(value, str) and bool(value) and not re.search(r"[\r\n]|^\[|^\s|\s$", value)


def _as_json(value: Any) -> str:
    indent = 2 if isinstance(value, dict | list) else None
    return json.dumps(value, indent=indent, ensure_ascii=False)


def _without_secrets(value: Any) -> Any:
    """A copy without what is shown as `***`."""
    if isinstance(value, Mapping):
        return {k: _without_secrets(v) for k, v in value.items() if not _is_hidden(v)}
    if isinstance(value, list):
        return [_without_secrets(each) for each in value if not _is_hidden(each)]
    return None if _is_hidden(value) else value


def _is_hidden(value: Any) -> bool:
    return isinstance(value, str) and REDACTED in value


# --- reading -------------------------------------------------------------------------------------


def read(found: Sequence[Field], typed: Mapping[str, str]) -> dict[str, Any]:
    """Read what was typed, which stays in the fields but for secrets. What cannot be read is
    refused at its field."""
    parameters: dict[str, Any] = {}
    for each in found:
        text = typed.get(each.input, "").replace("\r\n", "\n")
        if not text.strip():
            continue
        each.typed = _kept(each, text)
        try:
            value = _value(each, text)
        except NotRead as error:
            each.refusals.append(str(error))
            continue
        if each.name == OTHERS:
            parameters = value | parameters
        else:
            parameters[each.name] = value
    return parameters


def _kept(of: Field, text: str) -> str:
    """The part of what was typed that a page may show again."""
    if of.is_secret:
        return ""
    if of.kind is not Kind.JSON:
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return redaction.redacted_text(text)
    schema = {"properties": {of.name: of.schema}} if of.name else None
    shown = redaction.redacted({of.name: value}, schema=schema)[of.name]
    return text if shown == value else _as_json(shown)


def _value(of: Field, text: str) -> Any:
    if of.kind is Kind.SECRET and (reference := _reference(text)):
        return reference
    if of.kind in (Kind.TEXT, Kind.SECRET) and _type(of) not in ("number", "integer"):
        return text
    if of.kind in (Kind.NUMBER, Kind.SECRET):
        number = text.strip()
        # what is no number stays a text, and is refused by the schema
        return json.loads(number) if NUMBER.fullmatch(number) else number
    if of.kind is Kind.TEXTS and not text.lstrip().startswith("["):
        return [line for line in text.split("\n") if line]
    value = _json(text)
    if of.name == OTHERS and not isinstance(value, dict):
        raise NotRead("expected a JSON object")
    if any(_is_redacted(value)):
        raise NotRead(f"{REDACTED} stands for a secret that is not shown: type it again")
    return value


def _reference(text: str) -> Any:
    """A reference to a key, which may stand for a secret; None if it is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if key_references.is_reference(value) else None


def _type(of: Field) -> Any:
    return of.schema.get("type") if isinstance(of.schema, Mapping) else None


def _json(text: str) -> Any:
    try:
        return json_values.read(text.encode("utf-8", "replace"))
    except (json_values.Malformed, json_values.Unreadable) as error:
        raise NotRead(f"expected JSON: {error}") from None


def _is_redacted(value: Any) -> Iterator[bool]:
    """Yield True for each value in it for which `***` stands, and False for each other."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
        else:
            yield value == REDACTED


# --- refusing ------------------------------------------------------------------------------------


def refuse(found: Sequence[Field], refusals: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Write refusals, pairs of pointer and message, to the fields that they are about; returns
    those that are about none."""
    rest = []
    for pointer, message in refusals:
        about = _about(found, pointer, message)
        if about is None:
            rest.append((pointer, message))
        else:
            inside = pointer.removeprefix(about.pointer)
            about.refusals.append(f"{inside}: {message}" if inside else message)
    return rest


def _about(found: Sequence[Field], pointer: str, message: str) -> Field | None:
    named = [each for each in found if each.name != OTHERS]
    for each in named:
        if pointer == each.pointer or pointer.startswith(f"{each.pointer}/"):
            return each
    if pointer == "/parameters":
        # a property that is missing is said of the object that lacks it
        for each in named:
            if each.is_required and not each.typed and f"{each.name!r}" in message:
                return each
    others = [each for each in found if each.name == OTHERS]
    return others[0] if others and pointer.startswith("/parameters") else None
