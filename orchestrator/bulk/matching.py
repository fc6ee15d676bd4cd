"""The rows that a bulk order is about: the ids of those that match its search now, bounded in
number and in time, and whether they still match later.

The ids are read in one statement, so that all of them matched at one moment. Only parameters and
messages are compared afterwards, in what that statement found: see ADR 85.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from orchestrator.bulk import terms
from orchestrator.core import database, search
from orchestrator.core.authority import Principal
from orchestrator.core.errors import MusterError
from orchestrator.core.models import DLQEntry, Execution
from orchestrator.core.models.time_ordered import created_between
from orchestrator.core.search.conditions import Asked, Check
from orchestrator.workflows.models import Step, Task

MOST = 100_000
"""Rows of one order."""
SECONDS = 10.0
"""The longest look for them."""
WINDOW = timedelta(hours=24)
"""A search that scans and names no time looks back so far."""
CHUNK = 250
"""Rows whose parameters or messages are compared at once."""


class SearchNeeded(MusterError):
    """Expected a search, or ids: an order without one would be about everything."""


class MatchesTooMany(MusterError):
    """The search matches too much for one order."""


class LooksTooLong(MusterError):
    """The search took too long; narrow it, for example by created:<1h or action:."""


@contextmanager
def _looking_for(seconds: float) -> Iterator[None]:
    """Have the database look for no longer. Raises LooksTooLong."""
    try:
        with database.answering_within(seconds):
            yield
    except database.TookTooLong:
        raise LooksTooLong from None


@dataclass(frozen=True)
class Condition:
    """A search that was read."""

    q: Q
    checks: Sequence[Check] = ()
    """They compare what the database may not."""
    looked_from: datetime | None = None
    """The beginning of the window, if it is limited."""


@dataclass(frozen=True)
class Noun:
    """A kind of rows that orders are about."""

    name: str
    visible: Callable[[Principal], QuerySet[Any]]
    read: Callable[[str, Principal, datetime], Condition]
    """Reads a search. Raises NotUnderstood."""
    state: str = "state"
    """The column that says how it stands."""
    key: str = "pk"
    """The column with the id that people know."""

    def state_of(self, id: UUID, principal: Principal) -> str:
        """The state of a row; empty if it is gone."""
        rows = self.visible(principal).filter(**{self.key: id}).order_by()
        state: str | None = rows.values_list(self.state, flat=True).first()
        return state or ""

    def wanted(
        self, query: str, ids: Collection[UUID], *, principal: Principal, now: datetime
    ) -> Wanted:
        """The rows of a search or, without one, of these ids. Raises NotUnderstood and
        SearchNeeded."""
        rows = self.visible(principal)
        if query.strip():
            condition = self.read(query, principal, now)
        elif ids:
            condition = Condition(Q(**{f"{self.key}__in": ids}))
        else:
            raise SearchNeeded
        return Wanted(self, rows.filter(condition.q), condition.checks, condition.looked_from)


@dataclass(frozen=True)
class Wanted:
    """The rows of an order, as a query."""

    noun: Noun
    rows: QuerySet[Any]
    checks: Sequence[Check]
    looked_from: datetime | None

    def ids(self, *, up_to: UUID | None = None) -> list[UUID]:
        """The ids of those that match now, in the order of primary keys, up to one of them. Raises
        MatchesTooMany and LooksTooLong."""
        rows = self.rows if up_to is None else self.rows.filter(**{f"{self.noun.key}__lte": up_to})
        until = time.monotonic() + SECONDS
        with _looking_for(SECONDS):
            keys = rows.order_by("pk").values_list(self.noun.key, flat=True)
            found = list(keys[: MOST + 1])
        if len(found) > MOST:
            compared = ", before parameters and messages are compared" if self.checks else ""
            raise MatchesTooMany(
                f"The search matches more than {MOST:,} {self.noun.name}{compared}, the most of "
                "one order; narrow it, for example to a part of the time"
            )
        return self._checked(found, until)

    def number(self, *, most: int, seconds: float) -> int | None:
        """The number of rows that match, before parameters and messages are compared; None for more
        than `most`. Raises LooksTooLong."""
        with _looking_for(seconds):
            number = self.rows.order_by().values("pk")[: most + 1].count()
        return number if number <= most else None

    def still(self, id: UUID, *, lock: bool = False) -> Any:
        """The row of this id if it matches now, else None; locked until the end of the transaction
        if `lock`."""
        rows = self.rows.filter(**{self.noun.key: id})
        row = (rows.select_for_update(of=("self",)) if lock else rows).first()
        return None if row is None or (self.checks and not self._compared([row])) else row

    def _checked(self, ids: list[UUID], until: float) -> list[UUID]:
        if not self.checks:
            return ids
        left: list[UUID] = []
        for start in range(0, len(ids), CHUNK):
            if time.monotonic() > until:
                raise LooksTooLong
            chunk = ids[start : start + CHUNK]
            matching = self._compared(list(Execution.objects.filter(pk__in=chunk)))
            left += [id for id in chunk if id in matching]
        return left

    def _compared(self, rows: list[Execution]) -> set[UUID]:
        for check in self.checks:
            matching = check(rows) if rows else set()
            rows = [row for row in rows if row.pk in matching]
        return {row.pk for row in rows}


def _executions(text: str, principal: Principal, now: datetime) -> Condition:
    wanted = search.read(text, Asked(principal, now))
    checks = tuple(each.check for each in wanted.conditions if each.check is not None)
    if not wanted.scans or wanted.window is not None:
        return Condition(wanted.q, checks)
    looked_from = now - WINDOW
    return Condition(wanted.q & created_between(looked_from, None), checks, looked_from)


def _investigations(text: str, principal: Principal, now: datetime) -> Condition:
    wanted = terms.read(text, terms.of_investigations(), now)
    return Condition(wanted & Q(resolution_status=DLQEntry.Resolution.PENDING))


def _tasks(text: str, principal: Principal, now: datetime) -> Condition:
    return Condition(terms.read(text, terms.of_tasks(), now))


def _steps(text: str, principal: Principal, now: datetime) -> Condition:
    return Condition(terms.read(text, terms.of_steps(), now))


EXECUTIONS = Noun(
    "executions", lambda user: Execution.objects.visible_to(user), _executions, state="status"
)
INVESTIGATIONS = Noun(
    "investigations",
    lambda user: DLQEntry.objects.visible_to(user),
    _investigations,
    state="resolution_status",
    key="dlq_entry_uuid",
)
TASKS = Noun("tasks", lambda user: Task.objects.visible_to(user).select_related("template"), _tasks)
STEPS = Noun(
    "steps",
    lambda user: Step.objects.visible_to(user).select_related("task__template"),
    _steps,
)
