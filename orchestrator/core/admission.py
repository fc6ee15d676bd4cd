"""The seam for limits: what core asks before it starts executions.

`orchestrator.policies` fills this seam in its `AppConfig.ready`. While nobody does, or no limit is
in force, everything is admitted, and nothing is asked of the database.

Core asks after it has chosen a worker for each execution and before it writes the choice, in one
transaction. Whoever answers holds what it counted until that transaction ends. An error of it
starts nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol
from uuid import UUID

if TYPE_CHECKING:
    from orchestrator.core.models import Execution
    from orchestrator.core.models.executions import ExecutionQuerySet


class Refusal(NamedTuple):
    """An execution that may not start now."""

    why: str
    again_at: datetime | None
    """The time at which it is looked at again; None if it ends, as its limit lets nothing wait."""


class Admission(Protocol):
    """The answer for one batch."""

    @property
    def refused(self) -> Mapping[UUID, Refusal]:
        """Those that may not start. All others may."""

    def take(self, started: Collection[UUID]) -> None:
        """Count these, which do start, and note that the refused ones wait. In the transaction in
        which it was asked."""


class Limits(Protocol):
    """Knows the limits in force, as they were at most a second ago."""

    def concern(self, executions: Sequence[Execution]) -> bool:
        """Return True if a limit may concern one of these. Nearly always without a statement."""

    def narrow(self, rows: ExecutionQuerySet) -> ExecutionQuerySet:
        """Those of these rows that a limit concerns."""

    def ask(self, executions: Sequence[Execution], *, now: datetime) -> Admission:
        """Decide which of these may start. Inside a transaction; waits for others that decide about
        the same limits."""

    def ended(self, execution_ids: Collection[UUID], *, now: datetime) -> int:
        """Make the executions due that these, which ended, have kept waiting; returns how many."""


class NoAdmission:
    refused: Mapping[UUID, Refusal] = {}

    def take(self, started: Collection[UUID]) -> None:
        return


class NoLimits:
    """An installation without limits."""

    def concern(self, executions: Sequence[Execution]) -> bool:
        return False

    def narrow(self, rows: ExecutionQuerySet) -> ExecutionQuerySet:
        return rows.none()

    def ask(self, executions: Sequence[Execution], *, now: datetime) -> Admission:
        return NoAdmission()

    def ended(self, execution_ids: Collection[UUID], *, now: datetime) -> int:
        return 0


_make: Callable[[], Limits] = NoLimits


def fill(make: Callable[[], Limits]) -> Callable[[], Limits]:
    """Fill the seam; returns what filled it before."""
    global _make
    before, _make = _make, make
    return before


def limits() -> Limits:
    """Return who knows the limits."""
    return _make()
