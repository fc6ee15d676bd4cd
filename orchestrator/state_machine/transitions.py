"""The only two functions that change a status or a state."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from django.apps import apps

from orchestrator.state_machine.executions import EXECUTIONS, ExecutionStatus
from orchestrator.state_machine.machine import Machine, Move, TransitionConflict
from orchestrator.state_machine.steps import STEPS
from orchestrator.state_machine.tasks import TASKS

if TYPE_CHECKING:
    from orchestrator.models import Execution, Step, Task

    Row = TypeVar("Row", Execution, Task, Step)

MACHINES = {machine.model: machine for machine in (EXECUTIONS, TASKS, STEPS)}


def allows(event: str, status: ExecutionStatus | str) -> bool:
    """Whether `event` may happen to an execution in `status`."""
    return EXECUTIONS.allows(event, status)


def transition_many(
    event: str | Sequence[str],
    moves: Sequence[Move],
    *,
    now: datetime,
    actor: str,
    reason: str | None = None,
    machine: Machine = EXECUTIONS,
    wait_for_locks: bool | None = None,
) -> set[UUID]:
    """Carry out one event on many rows in one statement, each with its row of history.

    Several events are carried out as one: nobody sees a state between them, and each leaves its
    row of history. Returns the ids that moved; what is not among them lost its race and is
    unchanged.

    `wait_for_locks`: whether to wait, up to the database's `lock_timeout`, for rows that another
    transaction holds. Otherwise those are passed over, and are not among what is returned. By
    default a batch of executions passes over them, as backlog and sweep find them again, and
    tasks and steps wait, as who moves those holds their task and expects the whole batch.
    SQLite locks no rows, only everything.
    Raises UnknownEvent, and TransitionConflict if a caller expects an impossible source.
    """
    way = machine.way(*([event] if isinstance(event, str) else event))
    for move in moves:
        if move.status not in way[0].sources:
            raise TransitionConflict(
                f"{way[0].event} is not possible from {move.status} ({move.id})"
            )
    if not moves:
        return set()
    model = apps.get_model("orchestrator", machine.model)
    waits = machine.waits_for_locks if wait_for_locks is None else wait_for_locks
    moved: set[UUID] = model.objects.swap(
        machine, way, moves, now=now, actor=actor, reason=reason, wait_for_locks=waits
    )
    return moved


def transition(
    row: Row,
    event: str,
    *,
    now: datetime,
    actor: str,
    reason: str | None = None,
    **values: Any,
) -> Row:
    """Carry out one event on one execution, task or step, and return it as it is now.

    Waits for a row that another transaction holds: whoever asks for this one wants an answer.
    Raises TransitionConflict if it has moved since `row` was read, and OperationalError if it is
    held for longer than the database's `lock_timeout`.
    """
    machine = MACHINES[type(row).__name__]
    state, fence = getattr(row, machine.column), getattr(row, machine.fence)
    move = Move(row.pk, state, fence, values)
    if not transition_many(
        event,
        [move],
        now=now,
        actor=actor,
        reason=reason,
        machine=machine,
        wait_for_locks=True,
    ):
        raise TransitionConflict(
            f"{event}: {row.pk} is no longer {state} at {machine.fence} {fence}"
        )
    row.refresh_from_db()
    return row
