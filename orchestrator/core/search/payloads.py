"""Terms about parameters and messages. A search finds what the caller may see, and no secret.

The database only finds the rows that could match. Whether they do is decided by the values that
lists and pages show: without secrets, and without all of it for whoever lacks `payloads.read`.
What is left out must change neither the rows nor the cursor of a page: a caller who guesses would
learn from them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from django.db.models import JSONField, Q
from django.db.models import Value as SqlValue
from django.db.models.fields.json import KeyTransform, KeyTransformExact

from orchestrator.core import json_values, redaction
from orchestrator.core.models import Action, Execution
from orchestrator.core.reasons import Reason
from orchestrator.core.search.conditions import Asked, Condition, Mistaken, any_of
from orchestrator.core.search.grammar import Mistake, Term, Value
from orchestrator.core.shown import executions as shown

ASCII = re.compile(r"[ -~]+")

ALWAYS_COMPARED = rf"^[{{\[]|://[^/\s:@]*:[^/\s@]+@|{redaction.NAMED_IN_TEXT}"
"""Messages in which a secret may be hidden: with a URL with a password, or with names inside."""

JSON_WORDS = {"true": True, "false": False}


def message(term: Term, asked: Asked) -> Condition:
    """The message of a failed execution has this text in it, in whatever case."""
    texts = [value.text for value in term.values]
    failed = ~Q(reason__in=("", Reason.SUCCEEDED.value)) & asked.payload_packs()
    could_match = any_of([_could_have(text) for text in texts])
    # whatever was asked for, these are compared: else the number of rows would tell of secrets
    could_match |= Q(result__message__iregex=ALWAYS_COMPARED)
    return Condition(failed & could_match, check=partial(_have_message, texts, asked))


def _could_have(text: str) -> Q:
    """The database's own idea of upper and lower case counts for ASCII alone."""
    pieces = ASCII.findall(text)
    return Q(result__message__icontains=max(pieces, key=len)) if pieces else Q()


def _have_message(texts: Sequence[str], asked: Asked, rows: Collection[Execution]) -> set[UUID]:
    wanted = [text.lower() for text in texts]
    said = shown.messages(rows, seen_by=asked.principal)
    return {id for id, text in said.items() if any(each in text.lower() for each in wanted)}


def parameter(term: Term, asked: Asked) -> Condition:
    """The parameter at the path of the key has this value."""
    steps = _path(term)
    readings = [reading for value in term.values for reading in _readings(value)]
    place: Any = "parameters"
    for step in steps:
        place = _Step(step, place)
    equal = [Q(KeyTransformExact(place, SqlValue(each, JSONField()))) for each in readings]
    q = any_of(equal) & ~Q(action_ref__in=_where_secret(steps)) & asked.payload_packs()
    return Condition(q, check=partial(_have_parameter, steps, readings, asked))


class _Step(KeyTransform):
    """A step to what is below a name of an object or at a place of an array. Django takes whatever
    looks like a number for a place, which finds no name, and which PostgreSQL refuses if it is
    large, SQLite if it is negative."""

    def as_postgresql(self, compiler: Any, connection: Any) -> tuple[str, tuple[Any, ...]]:
        column, parameters, steps = self.preprocess_lhs(compiler, connection)
        return f"({column} {self.postgres_nested_operator} %s)", (*parameters, steps)

    def as_sqlite(
        self, compiler: Any, connection: Any, **context: Any
    ) -> tuple[str, tuple[Any, ...]]:
        sql, _ = super().as_sqlite(compiler, connection)
        _, parameters, (first, *others) = self.preprocess_lhs(compiler, connection)
        # parameters are an object; SQLite's paths say which of the two is meant
        others = [f"[{int(x)}]" if x.isdecimal() else f".{json.dumps(x)}" for x in others]
        path = "".join(["$.", json.dumps(first), *others])
        return sql, (*parameters, path) * 3


def _path(term: Term) -> list[str]:
    """The steps of `param.order.id`. Raises Mistaken."""
    steps = term.key.split(".")[1:]
    message = ""
    if not all(steps):
        message = "expected names with a dot between them, such as param.order.id"
    elif any(map(redaction.is_name_of_secret, steps)):
        message = "the name of a secret, whose value no search compares"
    if message:
        raise Mistaken([Mistake(term.key_start, term.key_end, message)])
    return steps


def _readings(value: Value) -> list[Any]:
    """A value as text and, without quotes, as the number or boolean that it may be."""
    if value.is_quoted:
        return [value.text]
    if value.text in JSON_WORDS:
        return [value.text, JSON_WORDS[value.text]]
    try:
        number = json.loads(value.text, parse_constant=str)
    except ValueError:
        return [value.text]
    is_number = isinstance(number, int | float) and abs(number) < float("inf")
    return [value.text, number] if is_number else [value.text]


def _where_secret(steps: Sequence[str]) -> list[str]:
    """The actions whose schema marks what is at this path."""
    schemas = Action.objects.values_list("ref", "parameters_schema")
    # a step such as 0 is an item of an array, or a property with that name
    paths = [steps, [int(step) if step.isdecimal() else step for step in steps]]
    return [
        ref
        for ref, schema in schemas
        if any(redaction.secret_depth(path, schema=schema) is not None for path in paths)
    ]


def _have_parameter(
    steps: Sequence[str], wanted: Sequence[Any], asked: Asked, rows: Collection[Execution]
) -> set[UUID]:
    found = shown.parameters_of(rows, seen_by=asked.principal)
    return {
        id
        for id, parameters in found.items()
        if _is_among(json_values.at(parameters, steps), wanted)
    }


def _is_among(value: Any, wanted: Sequence[Any]) -> bool:
    # True == 1 for Python, but not in JSON
    return any(
        value == each and isinstance(value, bool) == isinstance(each, bool) for each in wanted
    )
