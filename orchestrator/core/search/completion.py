"""The texts that may follow in a search that is being written: keys, and values of which there are
few."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from orchestrator.core import queue_terms
from orchestrator.core.models import Action, Worker
from orchestrator.core.search.conditions import Asked
from orchestrator.core.search.grammar import KEY
from orchestrator.core.search.terms import CONDITIONS, REASONS, STATUSES, keys

MOST = 20
"""Suggestions, and rows of each query for them."""


@dataclass(frozen=True)
class Suggestion:
    """A text that may stand from `start` to `end` of the search, and what it means."""

    text: str
    start: int
    end: int
    about: str = ""


def complete(text: str, position: int, asked: Asked) -> list[Suggestion]:
    """The texts that may stand at this position of a search, the word up to there completed."""
    word = _beginning_of_word(text, position)
    start = position - len(word)
    named = KEY.match(word)
    if named is None:
        return [
            Suggestion(f"{name}{'.' if key.has_path else ':'}", start, position, key.about)
            for name, key in keys().items()
            if name and name.startswith(word)
        ]
    typed = word[named.end() :].rpartition(",")[2]
    found = _values(named[1], typed, asked)
    return [Suggestion(value, position - len(typed), position) for value in islice(found, MOST)]


def _beginning_of_word(text: str, position: int) -> str:
    """The word before the position, without a minus."""
    before = text[:position]
    if before.count('"') % 2:  # inside of quotes, where anything may stand
        return '"'
    words = before.split()
    if not words or before[-1].isspace():
        return ""
    return words[-1].removeprefix("-")


def _values(key: str, typed: str, asked: Asked) -> Iterable[str]:
    find = VALUES.get(key)
    if find is not None:
        return find(typed, asked)
    return [keys()[key].example.partition(":")[2]] if key in RANGES and not typed else []


def _codes(codes: Iterable[str]) -> Callable[[str, Asked], Iterable[str]]:
    return lambda typed, asked: (code for code in codes if code.startswith(typed))


def _actions(typed: str, asked: Asked) -> Iterable[str]:
    rows = Action.objects.visible_to(asked.principal, "executions.read")
    names = rows.filter(ref__startswith=typed).order_by("ref").values_list("ref", flat=True)
    return names[:MOST]


def _workers(typed: str, asked: Asked) -> Iterable[str]:
    rows = Worker.objects.visible_to(asked.principal).known()
    names = rows.filter(name__startswith=typed).order_by("name").values_list("name", flat=True)
    return names[:MOST]


def _queues(typed: str, asked: Asked) -> Iterable[str]:
    names = (queue_terms.DEFAULT, *sorted(queue_terms.queues().terms()))
    return (name for name in names if name.startswith(typed))


VALUES: Mapping[str, Callable[[str, Asked], Iterable[str]]] = {
    "status": _codes(STATUSES),
    "reason": _codes(REASONS),
    "is": _codes(CONDITIONS),
    "action": _actions,
    "worker": _workers,
    "queue": _queues,
}

RANGES = ("attempt", "created", "waited", "ran")
"""Keys whose values are compared: an example says how."""
