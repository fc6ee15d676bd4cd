"""Takes secrets out of what is kept or shown for people: values by their schema and their names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

REDACTED = "***"

SECRET_NAME = re.compile(
    r"passw(or)?d|passphrase|pwd|secret|token|apikey|accesskey|privatekey|credential"
    r"|authorization|cookie"
)
"""What is searched for in a name, once it is in lower case and without `-`, `_`, `.`, blanks."""

URL_WITH_PASSWORD = re.compile(r"(?<=://)[^/\s:@]*:[^/\s@]+(?=@)")

DEPTH_LIMIT = 50
"""Deeper than any accepted parameters; a schema may refer to itself."""

Schema = Mapping[str, Any]


def redacted(value: Any, *, schema: Any = None) -> Any:
    """A copy of JSON `value` in which secrets are `***`.

    A secret is what `schema` (JSON Schema) marks `secret: true` or `writeOnly: true`, what has a
    name like password, token, secret or api_key, and the password within a URL.
    """
    return _redacted(value, [(schema, schema)], depth=0)


def _redacted(value: Any, found: Sequence[tuple[Any, Any]], *, depth: int) -> Any:
    """`found`: each schema that speaks of this value, with the document that it is part of."""
    if depth > DEPTH_LIMIT:
        return REDACTED
    schemas = _parts(found)
    if any(s.get("secret") is True or s.get("writeOnly") is True for s, _ in schemas):
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


def _is_secret(name: str, value: Any) -> bool:
    if value is None or isinstance(value, bool):
        return False  # `use_token: true` gives nothing away
    return SECRET_NAME.search(re.sub(r"[-_.\s]", "", name.lower())) is not None


def _parts(found: Sequence[tuple[Any, Any]]) -> list[tuple[Schema, Any]]:
    """These schemas and all that they are combined of, each once: whatever might apply does."""
    parts: list[tuple[Schema, Any]] = []
    seen: set[int] = set()
    waiting = list(found)
    while waiting:
        schema, root = waiting.pop()
        if not isinstance(schema, Mapping) or id(schema) in seen:
            continue
        seen.add(id(schema))
        parts.append((schema, root))
        combined = [schema.get(name) for name in ("if", "then", "else")]
        for name in ("allOf", "anyOf", "oneOf"):
            alternatives = schema.get(name)
            combined += alternatives if isinstance(alternatives, list) else []
        if isinstance(reference := schema.get("$ref"), str):
            combined.append(_resolved(reference, root))
        waiting += [(part, root) for part in combined]
    return parts


def _resolved(reference: str, root: Any) -> Any:
    """What `#/$defs/name` refers to; a schema may refer to nothing outside itself."""
    if not reference.startswith("#"):
        return None
    found = root
    for step in filter(None, reference.removeprefix("#").split("/")):
        name = step.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _of_property(schemas: Sequence[tuple[Schema, Any]], name: str) -> Iterator[tuple[Any, Any]]:
    for schema, root in schemas:
        named, patterns = schema.get("properties"), schema.get("patternProperties")
        own = [named[name]] if isinstance(named, Mapping) and name in named else []
        if isinstance(patterns, Mapping):
            own += [part for pattern, part in patterns.items() if _matches(pattern, name)]
        for part in own or [schema.get("additionalProperties")]:
            yield part, root


def _of_item(schemas: Sequence[tuple[Schema, Any]], number: int) -> Iterator[tuple[Any, Any]]:
    for schema, root in schemas:
        first = schema.get("prefixItems")
        if isinstance(first, list) and number < len(first):
            yield first[number], root
        yield schema.get("items"), root


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:
        return True  # written for another engine: what may be a secret is none of ours to show
