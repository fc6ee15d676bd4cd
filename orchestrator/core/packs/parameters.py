"""Parameters against the JSON Schema of their action."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

import referencing
import referencing.exceptions
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from referencing.jsonschema import DRAFT202012

if TYPE_CHECKING:
    from orchestrator.core.models import Action

Schema = Mapping[str, Any]

NOTHING_ELSE: referencing.Registry[Any] = referencing.Registry()
"""The documents that a schema may refer to besides itself. The default would fetch them."""

SIMPLE_TYPES = {"array", "boolean", "integer", "null", "number", "object", "string"}
PROBLEM_LIMIT = 50
MESSAGE_LIMIT = 300


@dataclass(frozen=True)
class Problem:
    """What is wrong with parameters: where, as a JSON pointer ("" is all of them), and what."""

    pointer: str
    message: str


@dataclass(frozen=True)
class SchemaProblem:
    """What is wrong with a schema, and where in it."""

    where: tuple[str | int, ...]
    message: str


def validate_parameters(action: Action, parameters: Mapping[str, Any]) -> list[Problem]:
    """Everything that is wrong with them, at most 50; an empty list if they are valid.

    Defaults in the schema are documentation: they are not filled in.
    """
    return _problems(_validator(action), parameters, action.ref)


def validate_value(schema: Schema, value: Any) -> list[Problem]:
    """The same for any other value and its schema: a task's context, a step's result."""
    validator = _validator_of(json.dumps(schema, sort_keys=True)) if schema else None
    return [] if validator is None else _problems(validator, value, "this value")


def _problems(validator: Draft202012Validator, value: Any, whose: str) -> list[Problem]:
    try:
        errors = list(islice(validator.iter_errors(value), PROBLEM_LIMIT))
    except referencing.exceptions.Unresolvable as error:
        return [Problem("", f"the schema of {whose} refers to {error.ref!r}, which it lacks")]
    problems = [Problem(_pointer(error.absolute_path), _message(error)) for error in errors]
    return sorted(problems, key=lambda problem: (problem.pointer, problem.message))


def schema_problems(schema: Schema) -> Iterator[SchemaProblem]:
    """Everything that is wrong with a schema of parameters, by JSON Schema 2020-12."""
    errors = list(_META_VALIDATOR.iter_errors(schema))
    for error in errors:
        yield SchemaProblem(tuple(error.absolute_path), _schema_message(error))
    kind = schema.get("type", "object")
    if kind != "object" and not any(error.absolute_path == deque(["type"]) for error in errors):
        yield SchemaProblem(("type",), f"expected 'object', as parameters are, found {kind!r}")
    resolver = NOTHING_ELSE.resolver_with_root(DRAFT202012.create_resource(dict(schema)))
    for where, reference in _references(schema):
        # another document would have to be fetched, from wherever it says
        if not reference.startswith("#"):
            yield SchemaProblem(
                where, f"expected a reference that begins with #, found {reference}"
            )
            continue
        try:
            resolver.lookup(reference)
        except (referencing.exceptions.Unresolvable, ValueError):
            yield SchemaProblem(where, f"refers to {reference}, which the schema does not have")


_META_VALIDATOR = Draft202012Validator(
    Draft202012Validator.META_SCHEMA,
    format_checker=Draft202012Validator.FORMAT_CHECKER,  # says which patterns are no regex
)

_validators: dict[int, tuple[datetime, Schema, Draft202012Validator]] = {}


def _validator(action: Action) -> Draft202012Validator:
    """Compiled once for each version of an action."""
    cached = _validators.get(action.pk)
    if cached and cached[:2] == (action.updated_at, action.parameters_schema):
        return cached[2]
    validator = _new_validator(action.parameters_schema)
    _validators[action.pk] = (action.updated_at, action.parameters_schema, validator)
    return validator


@lru_cache(maxsize=256)
def _validator_of(schema: str) -> Draft202012Validator:
    return _new_validator(json.loads(schema))


def _new_validator(schema: Schema) -> Draft202012Validator:
    return Draft202012Validator(
        schema, registry=NOTHING_ELSE, format_checker=Draft202012Validator.FORMAT_CHECKER
    )


def _references(
    schema: Any, where: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    items: Iterable[tuple[str | int, Any]] = ()
    if isinstance(schema, Mapping):
        items = schema.items()
    elif isinstance(schema, list):
        items = enumerate(schema)
    for key, value in items:
        if key in ("$ref", "$dynamicRef") and isinstance(value, str):
            yield (*where, key), value
        elif key not in ("const", "enum", "default", "examples"):
            yield from _references(value, (*where, key))


def _schema_message(error: ValidationError) -> str:
    if error.absolute_path and error.absolute_path[-1] == "type":
        known = ", ".join(sorted(SIMPLE_TYPES))
        return f"expected one of {known}, or a list of them, found {error.instance!r}"
    return _message(error)


def _message(error: ValidationError) -> str:
    text = error.message
    return text if len(text) <= MESSAGE_LIMIT else f"{text[:MESSAGE_LIMIT]}…"


def _pointer(path: Iterable[str | int]) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)
