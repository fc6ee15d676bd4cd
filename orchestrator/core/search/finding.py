"""Pages of what a search finds: bounded in rows and in time, and each says what it looked at."""

from __future__ import annotations

import enum
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar
from uuid import UUID

from orchestrator.core import cursors, database
from orchestrator.core.errors import Unavailable
from orchestrator.core.models import Execution
from orchestrator.core.models.executions import ExecutionQuerySet
from orchestrator.core.models.time_ordered import made_at, uuid7_floor
from orchestrator.core.search.terms import Wanted

SECONDS = 2.0
"""The longest look for one page."""

WINDOW = timedelta(hours=24)
"""Of a search that scans and names no time: a page looks at so much, before its newest row."""

FIRST_SLICE = 20_000
"""Rows. How fast they are read decides how many a page looks at."""
FIRST_COMPARED = 2_000
"""The same, if their parameters or messages are compared."""

CHUNK = 250
"""Rows whose parameters or messages are compared at once."""


class SearchTookTooLong(Unavailable):
    """The search took too long. Ask for less, for example by created:<1h"""

    kind: ClassVar[str] = "search-took-too-long"
    title: ClassVar[str] = "The search took too long"


class Stop(enum.StrEnum):
    """The reason why a page of a search that scans ends where it does."""

    PAGE = "page"
    """It is full."""
    ROWS = "rows"
    """It looked at as many rows as it may."""
    SECONDS = "seconds"
    """It looked for as long as it may."""
    WINDOW = "window"
    """It looked at 24 hours, and there are older executions."""
    END = "end"
    """There is no older execution that the search asks for."""


@dataclass(frozen=True)
class LookedAt:
    """The part of the executions that a search that scans looked at for a page."""

    stopped_by: Stop
    back_to: datetime | None
    """The time at which the oldest execution was made that it looked at; None for the very first
    one."""

    @property
    def text(self) -> str:
        """A sentence for people; empty if there is nothing to say."""
        if self.back_to is None or self.stopped_by in (Stop.PAGE, Stop.END):
            return ""
        amount = {
            Stop.ROWS: f"Looked at {cursors.LOOKED_AT_LIMIT:,} executions",
            Stop.SECONDS: f"Looked for {SECONDS:g} s",
            Stop.WINDOW: f"Looked at {WINDOW / timedelta(hours=1):g} h",
        }[self.stopped_by]
        return f"{amount}, back to {self.back_to:%Y-%m-%d %H:%M:%S} UTC."


@dataclass(frozen=True)
class Found:
    """A page, newest first."""

    rows: list[Execution]
    next_cursor: str | None
    looked_at: LookedAt | None = None
    """None if an index led to the rows: then nothing was left out."""


def find(
    wanted: Wanted,
    rows: ExecutionQuerySet,
    *,
    limit: int,
    below: UUID | None = None,
    among: ExecutionQuerySet | None = None,
    scans: bool = False,
) -> Found:
    """A page of those rows that a search wants. Raises SearchTookTooLong.

    `below`: the id in the cursor of this page. `among`: the rows that a scan looks at, if other
    filters limit their time. `scans`: other filters make it look at rows that do not match.
    """
    walk = _Walk(wanted, rows, limit)
    try:
        if wanted.scans or (scans and not wanted.is_few):
            return walk.by_slices(below, among)
        return walk.by_index(below)
    except database.TookTooLong:
        raise SearchTookTooLong from None


class _Walk:
    """One page in the making."""

    def __init__(self, wanted: Wanted, rows: ExecutionQuerySet, limit: int) -> None:
        self.wanted = wanted
        self.rows = rows.filter(wanted.q)
        self.checks = [each.check for each in wanted.conditions if each.check is not None]
        self.first_slice = FIRST_COMPARED if self.checks else FIRST_SLICE
        self.limit = limit
        self.found: list[Execution] = []
        self.until = time.monotonic() + SECONDS

    def by_index(self, below: UUID | None) -> Found:
        """A page of rows to which an index leads."""
        with database.answering_within(SECONDS):
            self._look(below, None)
        page, cursor = cursors.cut(self.found, self.limit)
        return Found(page, cursor)

    def by_slices(self, below: UUID | None, among: ExecutionQuerySet | None) -> Found:
        """A page of rows among which it has to look for them.

        Steps: 1. find the newest row and the end of the window; 2. look at a slice of the rows;
        3. stop if the page is full, or the window, the rows or the seconds are used up; 4. else
        go on with a slice as large as the time left allows.
        """
        among = Execution.objects.all() if among is None else among
        if self.wanted.window is not None:
            among = among.filter(self.wanted.window)
        end = None if self.wanted.window is not None else _end_of_window(among, below)
        looked_at, size = 0, min(self.first_slice, cursors.LOOKED_AT_LIMIT)
        while True:
            began = time.monotonic()
            try:
                with database.answering_within(self.until - began):
                    floor = _floor(among, below, end, size)
                    self._look(below, floor or end)
            except database.TookTooLong:
                if not looked_at:
                    raise
                return self._stopped(Stop.SECONDS, below)
            if len(self.found) > self.limit:
                return self._full()
            if floor is None:
                return self._at_end(among, end)
            below = floor
            looked_at += size
            if looked_at >= cursors.LOOKED_AT_LIMIT:
                return self._stopped(Stop.ROWS, below)
            size = self._next_size(size, time.monotonic() - began)
            size = min(size, cursors.LOOKED_AT_LIMIT - looked_at)
            if not size:
                return self._stopped(Stop.SECONDS, below)

    def _look(self, below: UUID | None, floor: UUID | None) -> None:
        """Add what matches below one id and from another one on, until the page is full."""
        rows = _within(self.rows, below, floor)
        missing = self.limit + 1 - len(self.found)
        if not self.checks:
            self.found += rows[:missing]
            return
        matching: list[Execution] = []
        while len(matching) < missing:
            if time.monotonic() > self.until:
                raise database.TookTooLong
            chunk = list(rows[:CHUNK])
            matching += self._checked(chunk)
            if len(chunk) < CHUNK:
                break
            rows = _within(self.rows, chunk[-1].pk, floor)
        self.found += matching[:missing]

    def _checked(self, rows: list[Execution]) -> list[Execution]:
        for check in self.checks:
            ids = check(rows) if rows else set()
            rows = [row for row in rows if row.pk in ids]
        return rows

    def _next_size(self, size: int, seconds: float) -> int:
        """Half of what the time left allows; 0 if that is too little to go on."""
        left = self.until - time.monotonic()
        allowed = int(size / max(seconds, 1e-6) * left / 2)
        return allowed if allowed >= self.first_slice / 2 else 0

    def _full(self) -> Found:
        page, cursor = cursors.cut(self.found, self.limit)
        return Found(page, cursor, LookedAt(Stop.PAGE, made_at(page[-1].pk)))

    def _stopped(self, by: Stop, at: UUID | None) -> Found:
        assert at is not None
        return Found(self.found, cursors.write(at), LookedAt(by, made_at(at)))

    def _at_end(self, among: ExecutionQuerySet, end: UUID | None) -> Found:
        if end is None or not _within(among, end, None).exists():
            return Found(self.found, None, LookedAt(Stop.END, None))
        return self._stopped(Stop.WINDOW, end)


def _within(rows: ExecutionQuerySet, below: UUID | None, floor: UUID | None) -> ExecutionQuerySet:
    """Those below one id and from another one on, the newest first; None is open."""
    if below is not None:
        rows = rows.filter(pk__lt=below)
    if floor is not None:
        rows = rows.filter(pk__gte=floor)
    return rows.order_by("-pk")


def _end_of_window(among: ExecutionQuerySet, below: UUID | None) -> UUID | None:
    """The smallest id of the 24 hours before the newest row; None if there is no row."""
    newest = _within(among, below, None).values_list("pk", flat=True).first()
    return None if newest is None else uuid7_floor(made_at(newest) - WINDOW)


def _floor(
    among: ExecutionQuerySet, below: UUID | None, end: UUID | None, size: int
) -> UUID | None:
    """The id of the last row of a slice of this size; None if there are fewer rows."""
    ids = _within(among, below, end).values_list("pk", flat=True)
    return next(iter(ids[size - 1 : size]), None)
