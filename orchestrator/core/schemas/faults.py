"""The faults of a schema, found before any value is checked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from orchestrator.core.schemas import limits, published
from orchestrator.core.schemas.checking import Check, Finding, TooCostly
from orchestrator.core.schemas.documents import Document, NoSuchReference, Where, parts


@dataclass(frozen=True)
class Fault:
    """One fault: its place in the schema, and what is wrong or does not fit there."""

    where: Where
    message: str = ""
    finding: Finding | None = None


def findings(document: Document, value: Any) -> Iterator[Finding]:
    """Find all that does not fit the schema, which must be without faults. Raises TooCostly."""
    try:
        yield from Check(document).findings(value, document.schema, ())
    except RecursionError:
        raise TooCostly from None


def faults(document: Document) -> Iterator[Fault]:
    """Find all faults of a schema. Raises TooCostly."""
    try:
        yield from _faults(document)
    except RecursionError:
        raise TooCostly from None


def _faults(document: Document) -> Iterator[Fault]:
    sound = True
    for finding in findings(_schema_of_schemas(), document.schema):
        sound = False
        yield Fault(finding.steps, finding=finding)
    yield from _references(document)
    if sound:
        yield from (Fault(where, message) for where, message in limits.offenders(document))


def _references(document: Document) -> Iterator[Fault]:
    found = list(parts(document.schema))
    known = {id(part) for _, part in found}
    for where, part in found:
        if where and "$id" in part:
            yield Fault((*where, "$id"), "expected $id at the top of a schema only")
        for name in limits.REFERENCES:
            if isinstance(part.get(name), str) and (
                message := _broken(document, part[name], known)
            ):
                yield Fault((*where, name), message)


def _broken(document: Document, reference: str, known: set[int]) -> str:
    # another document would have to be fetched, from an address in the schema
    if not reference.startswith("#"):
        return f"expected a reference that begins with #, found {reference}"
    try:
        target = document.resolve(reference)
    except NoSuchReference:
        return f"refers to {reference}, which the schema does not have"
    # what stands elsewhere was not checked as a schema
    if isinstance(target, bool) or id(target) in known:
        return ""
    return f"refers to {reference}, expected the place of a schema, as those in $defs"


@cache
def _schema_of_schemas() -> Document:
    """The schema of schemas as one document; its authors spread it over eight."""
    schema = published.schema_of_schemas()
    whole = _moved(schema, "#")
    whole["$defs"] = {
        name.removeprefix("meta/"): _moved(
            published.vocabulary(name), f"#/$defs/{name.removeprefix('meta/')}"
        )
        for name in (part["$ref"] for part in schema["allOf"])
    }
    return Document(whole)


def _moved(schema: Any, to: str) -> Any:
    """Return a copy whose references are right at its new place."""
    if isinstance(schema, list):
        return [_moved(item, to) for item in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {name: _moved(item, to) for name, item in schema.items()}
    if isinstance(schema.get("$dynamicRef"), str):
        moved["$dynamicRef"] = "#"  # the schema of schemas itself
    if isinstance(reference := schema.get("$ref"), str):
        document, _, fragment = reference.partition("#")
        place = f"#/$defs/{document.removeprefix('meta/')}" if document else to
        moved["$ref"] = place + fragment
    return moved
