"""Redaction of secrets in everything kept or shown for people, by schema and by name.

By value it is done before anything is stored, see `masking`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import re2

from orchestrator.core import key_references
from orchestrator.core.schemas import documents, patterns

REDACTED = "***"

SECRET_NAME = re.compile(
    r"passw(or)?d|passphrase|pwd|secret|token|apikey|accesskey|privatekey|credential"
    r"|authorization|cookie"
)
"""Matched against a name in lower case and without `-`, `_`, `.` and blanks."""

URL_WITH_PASSWORD = re.compile(r"(?<=://)[^/\s:@]*:[^/\s@]+(?=@)")

SCHEMAS_BY_NAME = (
    "properties", "patternProperties", "$defs", "definitions", "dependentSchemas",
)  # fmt: skip
"""Keywords whose value is no schema, but has schemas by names."""

DEPTH_LIMIT = 50
"""Deeper than any accepted parameters; needed as a schema may refer to itself."""

LONGEST_NAME = 1_000
"""Characters of a property's name that patterns are matched against."""

Schema = Mapping[str, Any]


LONGEST_QUOTE = 40
"""Characters of a text that a message quotes; of a longer one it tells the length."""

NAMED_IN_TEXT = (
    r"(?:passw(?:or)?d|passphrase|secret|token|api[-_]?key|access[-_]?key|private[-_]?key"
    r"|credential|authorization|cookie)[\w.-]*[\"']?\s*[:=]"
)
"""The beginning of what is redacted in a text; databases understand it, too."""

IN_TEXT = (
    rb"(?i)(" + NAMED_IN_TEXT.encode() + rb"\s*)"
    rb"(\"(?:[^\"\\]|\\.)*\"?|'[^']*'?|(?:bearer\s+|basic\s+)?[^\s,;&}\]]+)"
)
"""`password=...` and `"token": "..."` in a text that is no JSON, or not all of one."""


def redacted(value: Any, *, schema: Any = None) -> Any:
    """Return a copy of JSON `value` with secrets replaced by `***`.

    Secrets are values that `schema` (JSON Schema) marks `secret: true` or `writeOnly: true`, values
    with a name like password, token, secret or api_key, and passwords within URLs. A reference to a
    key is none.
    """
    return _redacted(value, [(schema, schema)], depth=0)


def redacted_schema(schema: Any) -> Any:
    """Return a copy of a JSON Schema without the values that it gives for what it marks as secret,
    or for names of secrets: in `default`, `const`, `enum` and `examples`."""
    return _without_values(schema, schema, name="", is_secret=False, depth=0)


def defaults_to_fill_in(schema: Any) -> dict[str, Any]:
    """The defaults of a JSON Schema's properties that a form may show: those that have no secret in
    them."""
    given, shown = _properties(schema), _properties(redacted_schema(schema))
    return {
        name: each["default"]
        for name, each in given.items()
        if "default" in each and each["default"] == shown[name]["default"]
    }


def _properties(schema: Any) -> dict[str, Mapping[str, Any]]:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    named = properties.items() if isinstance(properties, Mapping) else ()
    return {name: each for name, each in named if isinstance(each, Mapping)}


def _without_values(part: Any, root: Any, *, name: str, is_secret: bool, depth: int) -> Any:
    """`name`: of the property that this is the schema of, if it is one."""
    if depth > DEPTH_LIMIT:
        return REDACTED
    below: dict[str, Any] = {"is_secret": is_secret, "depth": depth + 1}
    if isinstance(part, list):
        return [_without_values(each, root, name="", **below) for each in part]
    if not isinstance(part, Mapping):
        return part
    below["is_secret"] = is_secret or _mark_secret(_parts([(part, root)]))

    def value(given: Any) -> Any:
        is_hidden = below["is_secret"] or (name and _is_secret(name, given))
        return REDACTED if is_hidden else _redacted(given, [(part, root)], depth=depth)

    shown: dict[str, Any] = {}
    for key, given in part.items():
        if key in ("default", "const"):
            shown[key] = value(given)
        elif key in ("enum", "examples") and isinstance(given, list):
            shown[key] = [value(each) for each in given]
        elif key in SCHEMAS_BY_NAME and isinstance(given, Mapping):
            is_property = key == "properties"
            shown[key] = {
                each: _without_values(schema, root, name=each if is_property else "", **below)
                for each, schema in given.items()
            }
        else:
            shown[key] = _without_values(given, root, name="", **below)
    return shown


def redacted_text(text: str) -> str:
    """Return a text of unknown form with the values of names like password replaced by `***`.

    JSON in one line is redacted as such; elsewhere `name=value` and `name: value` are found.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        content = URL_WITH_PASSWORD.sub(REDACTED, text).encode("utf-8", "replace")
        shown: bytes = _in_text().sub(lambda match: match[1] + REDACTED.encode(), content)
        return shown.decode("utf-8", "replace")
    known = redacted(value)
    return text if known == value else json.dumps(known, ensure_ascii=False)


@lru_cache
def _in_text() -> Any:
    # RE2 reads a text of any length once
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    return re2.compile(IN_TEXT, options)


def quoted(value: Any) -> str:
    """Return the value as a message quotes it: whole if it is short, by its size if it is not."""
    if isinstance(value, dict):
        return f"an object of {len(value):,}"
    if isinstance(value, list | tuple):
        return f"an array of {len(value):,}"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, str):
        if len(value) > LONGEST_QUOTE:
            return f"a text of {len(value):,} characters"
        return repr(redacted(value))
    text = repr(value)
    return text if len(text) <= LONGEST_QUOTE else f"a number of {len(text):,} digits"


def marked(value: Any, *, schema: Any) -> Iterator[Any]:
    """Find the values that the schema marks as secret. Names do not count."""
    waiting: list[tuple[Any, list[tuple[Any, Any]], int]] = [(value, [(schema, schema)], 0)]
    while waiting:
        item, applicable, depth = waiting.pop()
        schemas = _parts(applicable)
        if depth > DEPTH_LIMIT or _mark_secret(schemas):
            yield item
        elif isinstance(item, dict):
            waiting += [
                (each, list(_of_property(schemas, name)), depth + 1) for name, each in item.items()
            ]
        elif isinstance(item, list):
            waiting += [
                (each, list(_of_item(schemas, number)), depth + 1)
                for number, each in enumerate(item)
            ]


def marks_anything(schema: Any) -> bool:
    """Return True if a schema marks anything as secret, at any place."""
    waiting = [schema]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Mapping):
            if each.get("secret") is True or each.get("writeOnly") is True:
                return True
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
    return False


def secret_depth(steps: Sequence[str | int], *, schema: Any) -> int | None:
    """Return after how many of these steps into a value all is secret; None if the end is not."""
    applicable: list[tuple[Any, Any]] = [(schema, schema)]
    for depth in range(len(steps) + 1):
        schemas = _parts(applicable)
        if _mark_secret(schemas):
            return depth
        if depth < len(steps):
            step = steps[depth]
            if isinstance(step, str) and is_name_of_secret(step):
                return depth + 1
            into = _of_property(schemas, step) if isinstance(step, str) else _of_item(schemas, step)
            applicable = list(into)
    return None


def _redacted(value: Any, applicable: Sequence[tuple[Any, Any]], *, depth: int) -> Any:
    """`applicable`: each schema that applies to this value, with its whole document."""
    if depth > DEPTH_LIMIT:
        return REDACTED
    if isinstance(value, dict) and key_references.is_reference(value):
        return _reference(value)
    schemas = _parts(applicable)
    if _mark_secret(schemas):
        return REDACTED
    if isinstance(value, dict):
        return {
            key: REDACTED
            if _is_secret(key, item)
            else _redacted(item, list(_of_property(schemas, key)), depth=depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [
            _redacted(item, list(_of_item(schemas, number)), depth=depth + 1)
            for number, item in enumerate(value)
        ]
    return URL_WITH_PASSWORD.sub(REDACTED, value) if isinstance(value, str) else value


def _mark_secret(schemas: Sequence[tuple[Schema, Any]]) -> bool:
    return any(s.get("secret") is True or s.get("writeOnly") is True for s, _ in schemas)


def _is_references(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(key_references.is_reference, value))
    return key_references.is_reference(value)


def _is_secret(name: str, value: Any) -> bool:
    # `use_token: true` reveals nothing, nor does the name of a key, nor do several
    if value is None or isinstance(value, bool) or _is_references(value):
        return False
    return is_name_of_secret(name)


def _reference(value: Mapping[str, Any]) -> Any:
    """A reference without the texts around its keys: they may be secret, too."""
    parts = value.get(key_references.TEXT)
    if parts is None:
        return dict(value)
    shown = [REDACTED if isinstance(part, str) else dict(part) for part in parts]
    return {key_references.TEXT: shown}


def is_name_of_secret(name: str) -> bool:
    """Return True for a name like password, token or api_key."""
    return SECRET_NAME.search(re.sub(r"[-_.\s]", "", name.lower())) is not None


def _parts(applicable: Sequence[tuple[Any, Any]]) -> list[tuple[Schema, Any]]:
    """Return these schemas and all their subschemas, each once: whatever might apply counts."""
    parts: list[tuple[Schema, Any]] = []
    seen: set[int] = set()
    waiting = list(applicable)
    while waiting:
        schema, root = waiting.pop()
        if not isinstance(schema, Mapping) or id(schema) in seen:
            continue
        seen.add(id(schema))
        parts.append((schema, root))
        combined = [schema.get(name) for name in ("if", "then", "else", "not")]
        dependent = schema.get("dependentSchemas")
        combined += dependent.values() if isinstance(dependent, Mapping) else []
        for name in ("allOf", "anyOf", "oneOf"):
            alternatives = schema.get(name)
            combined += alternatives if isinstance(alternatives, list) else []
        for name in ("$ref", "$dynamicRef"):
            if isinstance(reference := schema.get(name), str):
                combined.append(_resolved(reference, root))
        waiting += [(part, root) for part in combined]
    return parts


def _resolved(reference: str, root: Any) -> Any:
    """Resolve `#/$defs/name`; a schema may refer to nothing outside itself."""
    try:
        return documents.Document(root).resolve(reference)
    except documents.NoSuchReference:
        return None


def _of_property(schemas: Sequence[tuple[Schema, Any]], name: str) -> Iterator[tuple[Any, Any]]:
    for schema, root in schemas:
        named, patterns = schema.get("properties"), schema.get("patternProperties")
        own = [named[name]] if isinstance(named, Mapping) and name in named else []
        if isinstance(patterns, Mapping):
            own += [part for pattern, part in patterns.items() if _matches(pattern, name)]
        others = [schema.get(name) for name in ("additionalProperties", "unevaluatedProperties")]
        for part in own or others:
            yield part, root


def _of_item(schemas: Sequence[tuple[Schema, Any]], number: int) -> Iterator[tuple[Any, Any]]:
    for schema, root in schemas:
        first = schema.get("prefixItems")
        if isinstance(first, list) and number < len(first):
            yield first[number], root
        for name in ("items", "contains", "unevaluatedItems"):
            yield schema.get(name), root


def _matches(pattern: str, name: str) -> bool:
    try:
        return len(name) > LONGEST_NAME or patterns.matches(pattern, name)
    except patterns.InvalidPattern:
        return True  # written for another engine: what may be a secret must not be shown
