"""The condition that a term of a search sets for rows, and how much the database reads for it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import or_
from typing import TypeVar
from uuid import UUID

from django.db.models import Q

from orchestrator.core import authority
from orchestrator.core.authority import Principal
from orchestrator.core.models import Action, Execution
from orchestrator.core.search.grammar import Mistake, Value
from orchestrator.core.search.values import Unreadable

T = TypeVar("T")

Check = Callable[[Collection[Execution]], set[UUID]]
"""The ids of those executions that match, compared with what the caller may see of them."""

NONE = Q(pk__in=[])


class Reads(enum.IntEnum):
    """The amount that the database reads for a term."""

    FEW = enum.auto()
    """An index leads to so few rows that the other terms may look at each of them."""
    INDEXED = enum.auto()
    """An index has the rows, the newest first."""
    SCANS = enum.auto()
    """No index knows the value: a page looks at a bounded number of rows."""


@dataclass(frozen=True)
class Asked:
    """The caller who searches, and the time."""

    principal: Principal
    now: datetime

    def payload_packs(self) -> Q:
        """The rows whose parameters and results the caller may read."""
        if authority.reach(self.principal, authority.PAYLOADS).is_everywhere:
            return Q()
        actions = Action.objects.visible_to(self.principal, authority.PAYLOADS)
        return Q(action_ref__in=list(actions.values_list("ref", flat=True)))


@dataclass(frozen=True)
class Condition:
    """A condition that must hold of a row."""

    q: Q
    """For the database. With a check, all rows that could match."""
    reads: Reads = Reads.SCANS
    check: Check | None = None
    window: Q | None = None
    """The time of creation that a scan is limited to, if the term says one."""

    def negated(self) -> Condition:
        """The opposite. No index leads to what a row is not."""
        if self.check is None:
            return Condition(~self.q)
        check = self.check
        # the database must not leave out what holds in the stored value but not in the shown one
        return Condition(Q(), check=lambda rows: {row.pk for row in rows} - check(rows))


class Mistaken(Exception):
    """Values of a term that cannot be read."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        self.mistakes = list(mistakes)


def each(values: Sequence[Value], read: Callable[[Value], T]) -> list[T]:
    """Read each of the values. Raises Mistaken with all that cannot be read."""
    found, mistakes = [], []
    for value in values:
        try:
            found.append(read(value))
        except Unreadable as error:
            mistakes.append(Mistake(value.start, value.end, str(error)))
    if mistakes:
        raise Mistaken(mistakes)
    return found


def any_of(conditions: Sequence[Q]) -> Q:
    """At least one of these."""
    return reduce(or_, conditions, NONE) if len(conditions) != 1 else conditions[0]
