"""Searches for investigations, tasks and steps: the grammar of `core.search`, with keys of their
own. Each leads to a bounded number of rows, so none scans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial, reduce
from operator import and_
from uuid import UUID

from django.db.models import Q

from orchestrator.core import investigations
from orchestrator.core.models import DLQEntry
from orchestrator.core.search import Mistake, NotUnderstood
from orchestrator.core.search.conditions import Mistaken, any_of, each
from orchestrator.core.search.grammar import Term, Value, parse
from orchestrator.core.search.values import Unreadable, times
from orchestrator.core.words import did_you_mean
from orchestrator.workflows.states import StepState, TaskState

Reader = Callable[[Sequence[Value], datetime], Q]


def read(text: str, keys: Mapping[str, Reader], now: datetime) -> Q:
    """Read a search with these keys. Raises NotUnderstood with all mistakes."""
    mistakes: list[Mistake] = []
    wanted: list[Q] = []
    for term in parse(text):
        try:
            wanted.append(_condition(term, keys, now))
        except Mistaken as mistaken:
            mistakes += mistaken.mistakes
    if mistakes:
        raise NotUnderstood(text, mistakes)
    return reduce(and_, wanted, Q())


def _condition(term: Term, keys: Mapping[str, Reader], now: datetime) -> Q:
    if term.key not in keys:
        hint = did_you_mean(term.key, keys) or f": expected one of {', '.join(keys)}"
        end = max(term.key_end, term.key_start + 1)
        message = f"no key is called {term.key!r}{hint}"
        raise Mistaken([Mistake(term.key_start, end, message)])
    found = keys[term.key](term.values, now)
    return ~found if term.is_negated else found


def _codes(column: str, known: Iterable[str]) -> Reader:
    """One of these codes."""
    names = [str(name) for name in known]

    def read(value: Value) -> str:
        if value.text not in names:
            hint = did_you_mean(value.text, names) or f": expected one of {', '.join(names)}"
            raise Unreadable(f"{value.text!r} is unknown{hint}")
        return value.text

    return lambda values, now: Q(**{f"{column}__in": each(values, read)})


def _ids(column: str) -> Reader:
    """A whole id."""

    def read(value: Value) -> UUID:
        try:
            return UUID(value.text)
        except ValueError:
            raise Unreadable("expected a whole id") from None

    return lambda values, now: Q(**{f"{column}__in": each(values, read)})


def _name(column: str, value: Value) -> Q:
    """A name; a `*` at its end stands for anything."""
    if value.text.endswith("*") and not value.is_quoted:
        return Q(**{f"{column}__startswith": value.text[:-1]})
    return Q(**{column: value.text})


def _names(column: str) -> Reader:
    return lambda values, now: any_of(each(values, partial(_name, column)))


def _opened(values: Sequence[Value], now: datetime) -> Q:
    if len(values) > 1:
        message = "opened takes one value; for a range say opened:1h..2h"
        raise Mistaken([Mistake(values[1].start, values[1].end, message)])
    (range,) = each(values, lambda value: times(value.text, now))
    return Q(**range.lookups("dlq_timestamp"))


def of_investigations() -> Mapping[str, Reader]:
    """The keys of investigations."""
    return {
        "reason": _codes("dlq_reason", DLQEntry.Reason.values),
        "kind": _codes("subject_kind", investigations.kinds()),
        "name": _names("subject_name"),
        "queue": _names("original_queue"),
        "opened": _opened,
        "about": _ids("subject_id"),
        "id": _ids("dlq_entry_uuid"),
    }


def of_tasks() -> Mapping[str, Reader]:
    """The keys of tasks."""
    return {
        "state": _codes("state", TaskState),
        "namespace": _names("template__namespace"),
        "template": _names("template__name"),
        "correlation": _names("correlation_id"),
        "id": _ids("pk"),
    }


def of_steps() -> Mapping[str, Reader]:
    """The keys of steps; `name` is that in the template."""
    return {
        "state": _codes("state", StepState),
        "task": _ids("task_id"),
        "name": _names("template_step"),
        "namespace": _names("task__template__namespace"),
        "template": _names("task__template__name"),
        "id": _ids("pk"),
    }
