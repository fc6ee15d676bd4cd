"""The only functions that change a status or a state: `transition`, and two methods of a query set.

Each is a compare-and-swap: a row changes, together with its history, only if its state and its
fence are still what the caller saw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar, cast
from uuid import UUID

from django.db import connections, models

from orchestrator.core import news
from orchestrator.core.state_machine import postgresql, sqlite
from orchestrator.core.state_machine.machine import Machine, Move, Transition, TransitionConflict
from orchestrator.core.state_machine.postgresql import Terms
from orchestrator.core.state_machine.swap import Swap
from orchestrator.core.statements import Rows

M = TypeVar("M", bound=models.Model)


def machine_of(model: type[models.Model]) -> Machine:
    """Return the machine that a model names in its class, as in `machine = EXECUTIONS`."""
    machine: Machine = model.machine  # type: ignore[attr-defined]
    return machine


class MachineQuerySet(models.QuerySet[M]):
    """The rows of a machine. Transitions ignore filters: the moves name the rows."""

    def transition_many(
        self,
        event: str | Sequence[str],
        moves: Sequence[Move],
        *,
        now: datetime,
        actor: str,
        reason: str | None = None,
        wait_for_locks: bool | None = None,
    ) -> set[UUID]:
        """Apply one event to many rows in one statement, each with its row of history.

        Several events are applied as one: nobody sees a state between them, and each leaves its row
        of history. Returns the ids that moved; every other row lost its race and is unchanged.

        `wait_for_locks`: wait, up to the database's `lock_timeout`, for rows that another
        transaction holds. Otherwise those are skipped and not returned. By default a batch of
        executions skips them, as backlog and sweep find them again; tasks and steps wait, as their
        caller holds the lock of the task and expects the whole batch to move. SQLite locks no rows,
        only everything. Raises UnknownEvent, and TransitionConflict if a move starts from an
        impossible state.
        """
        machine = machine_of(self.model)
        way = machine.way(*([event] if isinstance(event, str) else event))
        if not moves:
            return set()
        swap = self._swap(way, moves, now=now, actor=actor, reason=reason)
        if connections[self.db].vendor != "postgresql":
            moved = sqlite.carry_out(swap, using=self.db)
        else:
            waits = machine.waits_for_locks if wait_for_locks is None else wait_for_locks
            moved = postgresql.carry_out(swap, using=self.db, wait_for_locks=waits)
        news.tell(self.model, moved, state=way[-1].target, now=now)
        return moved

    def transition_on_terms(
        self,
        event: str,
        moves: Sequence[Move],
        terms: Terms,
        values: Mapping[str, Any],
        rows: Rows[M],
        *,
        now: datetime,
        actor: str,
    ) -> list[M]:
        """Apply one event to the rows that also meet the terms, with these values; returns those
        rows as they are now. Rows that another transaction holds are skipped.

        For the hot path on PostgreSQL: one statement instead of a SELECT and an UPDATE.
        """
        way = machine_of(self.model).way(event)
        swap = self._swap(way, moves, now=now, actor=actor, reason=None)
        moved = postgresql.carry_out_on_terms(swap, terms, values, rows, using=self.db)
        news.tell(self.model, (row.pk for row in moved), state=way[-1].target, now=now)
        return moved

    def _swap(
        self,
        way: tuple[Transition, ...],
        moves: Sequence[Move],
        *,
        now: datetime,
        actor: str,
        reason: str | None,
    ) -> Swap:
        """Prepare the swap. Raises TransitionConflict for a move that its state does not allow."""
        for move in moves:
            if move.status not in way[0].sources:
                raise TransitionConflict(
                    f"{way[0].event} is not possible from {move.status} ({move.id})"
                )
        machine = machine_of(self.model)
        return Swap.prepare(self.model, machine, way, moves, now=now, actor=actor, reason=reason)


def transition(
    row: M,
    event: str,
    *,
    now: datetime,
    actor: str,
    reason: str | None = None,
    **values: Any,
) -> M:
    """Apply one event to one row, and return the row as it is now.

    Waits if another transaction holds the row, as the caller needs an answer. Raises
    TransitionConflict if the row has moved since it was read, and OperationalError if it is held
    for longer than the database's `lock_timeout`.
    """
    machine = machine_of(type(row))
    state, fence = getattr(row, machine.column), getattr(row, machine.fence)
    move = Move(row.pk, state, fence, values)
    rows = cast("MachineQuerySet[M]", type(row)._default_manager.all())
    if not rows.transition_many(
        event, [move], now=now, actor=actor, reason=reason, wait_for_locks=True
    ):
        raise TransitionConflict(
            f"{event}: {row.pk} is no longer {state} at {machine.fence} {fence}"
        )
    row.refresh_from_db()
    return row
