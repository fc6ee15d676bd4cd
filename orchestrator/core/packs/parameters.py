"""Validation of parameters, contexts and results against their JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from orchestrator.core import json_values, key_references, redaction, schemas

if TYPE_CHECKING:
    from orchestrator.core.models import Action

Schema = Mapping[str, Any]

SIMPLE_TYPES = {"array", "boolean", "integer", "null", "number", "object", "string"}
PROBLEM_LIMIT = 50
MESSAGE_LIMIT = 300
TOO_COSTLY = "is too costly to check"
OPEN_TO_SEE = (
    "a key may stand only where the action expects a secret: its parameters' schema marks that "
    "with `secret: true`"
)
SECRET = "a value that is secret"  # noqa: S105 - it stands in its place


@dataclass(frozen=True)
class Problem:
    """One problem with parameters; `pointer` is a JSON pointer ("" means all of them)."""

    pointer: str
    message: str


@dataclass(frozen=True)
class SchemaProblem:
    """One problem with a schema, and its place in it."""

    where: tuple[str | int, ...]
    message: str


def validate_parameters(action: Action, parameters: Mapping[str, Any]) -> list[Problem]:
    """Return all problems with the parameters, at most 50; an empty list if they are valid.

    Defaults in the schema are documentation: they are not filled in. A schema that would not be
    installed today is itself the problem. Of the texts that references to keys stand for, only the
    type is checked; they stand where the schema, or a name, says that a secret is.
    """
    validator = _of_action(action)
    references = list(key_references.found(parameters))
    if not references:
        return validator.problems(parameters, whose=action.ref)
    values = {reference: reference for _, reference in references}
    filled = key_references.replaced(parameters, values, of=schemas.Unread)
    schema = action.parameters_schema
    misplaced = [
        Problem(json_values.pointer(path), OPEN_TO_SEE)
        for path, _ in references
        if redaction.secret_depth(path, schema=schema) is None
    ]
    return misplaced or validator.problems(filled, whose=action.ref)


def validate_value(schema: Schema, value: Any) -> list[Problem]:
    """The same for any other value and its schema: a task's context, a step's result."""
    if not schema:
        return []
    return _of_text(json.dumps(schema, sort_keys=True)).problems(value, whose="this value")


def schema_problems(schema: Schema) -> Iterator[SchemaProblem]:
    """Find the problems with a schema of parameters, by JSON Schema 2020-12 and our limits.

    At most 50, and one more if it is for something else than parameters.
    """
    kind = schema.get("type", "object")
    if kind != "object" and _is_type(kind):
        yield SchemaProblem(("type",), f"expected 'object', as parameters are, found {kind!r}")
    yield from value_schema_problems(schema)


def value_schema_problems(schema: Schema) -> Iterator[SchemaProblem]:
    """The same for a schema of any value."""
    yield from _faults(schemas.Document(dict(schema)))


class _Validator:
    """A schema that is used again, and what is wrong with it, which is looked up once."""

    def __init__(self, schema: Schema) -> None:
        self._document = schemas.Document(dict(schema))
        self._fault = next(_faults(self._document), None)

    def problems(self, value: Any, *, whose: str) -> list[Problem]:
        if self._fault:
            place = f" at {json_values.pointer(self._fault.where)}" if self._fault.where else ""
            message = f"the schema of {whose} cannot be used{place}: {self._fault.message}"
            return [Problem("", message)]
        try:
            found = list(islice(schemas.findings(self._document, value), PROBLEM_LIMIT))
        except schemas.TooCostly:
            return [Problem("", TOO_COSTLY)]
        problems = [_problem(finding, self._document.schema) for finding in found]
        return sorted(problems, key=lambda problem: (problem.pointer, problem.message))


_validators: dict[int, tuple[datetime, Schema, _Validator]] = {}


def _of_action(action: Action) -> _Validator:
    """Return the validator of an action, made once for each version of it."""
    cached = _validators.get(action.pk)
    if cached and cached[:2] == (action.updated_at, action.parameters_schema):
        return cached[2]
    validator = _Validator(action.parameters_schema)
    _validators[action.pk] = (action.updated_at, action.parameters_schema, validator)
    return validator


@lru_cache(maxsize=256)
def _of_text(schema: str) -> _Validator:
    return _Validator(json.loads(schema))


def _faults(document: schemas.Document) -> Iterator[SchemaProblem]:
    try:
        for fault in islice(schemas.faults(document), PROBLEM_LIMIT):
            message = fault.message
            if fault.finding:
                message = _schema_message(fault.where, fault.finding)
            yield SchemaProblem(fault.where, _shortened(message))
    except schemas.TooCostly:
        yield SchemaProblem((), TOO_COSTLY)


def _problem(finding: schemas.Finding, schema: Schema) -> Problem:
    """Quote nothing at or below what the schema, or a name, calls a secret: no name either."""
    steps = finding.steps
    depth = redaction.secret_depth(steps, schema=schema)
    found = _shown(finding.found) if depth is None else SECRET
    message = f"expected {finding.expected}, found {found}"
    return Problem(json_values.pointer(steps[:depth]), _shortened(message))


def _schema_message(where: tuple[str | int, ...], finding: schemas.Finding) -> str:
    expected = finding.expected
    if where and where[-1] == "type":
        expected = f"one of {', '.join(sorted(SIMPLE_TYPES))}, or a list of them"
    return f"expected {expected}, found {_shown(finding.found)}"


def _shown(value: Any) -> str:
    return value if isinstance(value, schemas.Said) else redaction.quoted(value)


def _shortened(text: str) -> str:
    return text if len(text) <= MESSAGE_LIMIT else f"{text[:MESSAGE_LIMIT]}…"


def _is_type(kind: Any) -> bool:
    names = kind if isinstance(kind, list) else [kind]
    return all(isinstance(name, str) and name in SIMPLE_TYPES for name in names)
