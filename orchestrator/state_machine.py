"""Every status, every way from one to another, and the only two functions that go it.

A transition is a compare-and-swap on (id, status, attempt): it happens if the row still is what
the caller saw, and otherwise not at all. Losing that race is normal and is called
`TransitionConflict`. A database trigger forbids leaving a terminal status, whoever tries.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from django.apps import apps

from orchestrator.errors import MusterError
from orchestrator.reasons import Reason

if TYPE_CHECKING:
    from orchestrator.models import Execution


class ExecutionStatus(enum.StrEnum):
    """Where an execution is."""

    REQUESTED = "requested"
    SCHEDULING = "scheduling"
    SCHEDULED = "scheduled"
    RUNNING = "running"
    CANCELING = "canceling"
    COMPLETED = "completed"
    FAILED = "failed"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    ABANDONED = "abandoned"


S = ExecutionStatus

TERMINAL = frozenset({S.COMPLETED, S.FAILED, S.TIMEOUT, S.CANCELLED, S.ABANDONED})
OPEN = frozenset(S) - TERMINAL

WHO_MOVES_IT_ON: Mapping[ExecutionStatus, str] = {
    S.REQUESTED: "the executor, told by `execution.requested` or by looking every second",
    S.SCHEDULING: "the executor, when `next_retry_at` has come",
    S.SCHEDULED: "the worker by its claim; after `start_by` the sweep; after the TTL the drain",
    S.RUNNING: "the worker; after `run_deadline_at` the sweep; when the worker is lost the check",
    S.CANCELING: "the worker; after `run_deadline_at` the sweep",
    S.COMPLETED: "nobody: terminal",
    S.FAILED: "nobody: terminal",
    S.TIMEOUT: "nobody: terminal",
    S.CANCELLED: "nobody: terminal",
    S.ABANDONED: "nobody: terminal",
}


@dataclass(frozen=True)
class Transition:
    """One row of the table: what may happen, from where, to where, and by whom."""

    event: str
    sources: frozenset[ExecutionStatus]
    target: ExecutionStatus
    who: str
    new_attempt: bool = False
    """Whether the fence moves: what belongs to earlier attempts is refused from then on."""

    @property
    def is_terminal(self) -> bool:
        return self.target in TERMINAL


def _row(
    event: str, sources: str, target: ExecutionStatus, who: str, *, new_attempt: bool = False
) -> Transition:
    return Transition(event, frozenset(map(S, sources.split())), target, who, new_attempt)


TRANSITIONS: Mapping[str, Transition] = {
    row.event: row
    for row in (
        _row(
            "schedule", "requested scheduling", S.SCHEDULED, "executor; sets worker and start_by",
            new_attempt=True,
        ),
        _row("wait", "requested", S.SCHEDULING, "executor; sets wait_reason and next_retry_at"),
        _row("claim", "scheduled", S.RUNNING, "the worker: this incarnation, before start_by"),
        _row("complete", "running canceling", S.COMPLETED, "the worker"),
        _row("fail", "running canceling", S.FAILED, "the worker: the action failed"),
        _row("time_out", "running", S.TIMEOUT, "the worker's limit, or the sweep after it"),
        _row("expire", "scheduled", S.FAILED, "DLQ drain or sweep: never started"),
        _row(
            "reject", "requested scheduling", S.FAILED,
            "executor: no worker available, invalid, deadline passed",
        ),
        _row(
            "give_back", "scheduled running", S.REQUESTED,
            "executor or worker: it did not begin, and that is known; counts for no policy",
        ),
        _row(
            "retry", "scheduled running", S.REQUESTED,
            "sweep, drain or worker, when the policy allows; retry_count + 1",
        ),
        _row("cancel", "requested scheduling scheduled", S.CANCELLED, "api"),
        _row("request_cancel", "running", S.CANCELING, "api"),
        _row("confirm_cancel", "canceling", S.CANCELLED, "the worker, or the sweep after it"),
        _row(
            "abandon", "running canceling", S.ABANDONED,
            "staleness check or worker: the process is lost, the outcome unknown",
        ),
    )
}  # fmt: skip


class UnknownEvent(MusterError):
    """No transition has this name."""


class TransitionConflict(MusterError):
    """Another process got there first: the row is no longer what the caller saw."""


class Move(NamedTuple):
    """One row's compare and what it is swapped for."""

    id: UUID
    status: ExecutionStatus | str
    """The status the caller saw."""
    attempt: int
    """The attempt the caller saw."""
    values: Mapping[str, Any] = MappingProxyType({})
    """Other columns to set, by field name; all moves of one call name the same ones."""


def allows(event: str, status: ExecutionStatus | str) -> bool:
    """Whether `event` may happen to an execution in `status`."""
    return ExecutionStatus(status) in _transition(event).sources


def transition_many(
    event: str,
    moves: Sequence[Move],
    *,
    now: datetime,
    actor: str,
    reason: Reason | None = None,
) -> set[UUID]:
    """Carry out one event on many executions in one statement, each with its history row.

    Returns the ids that moved. What is not among them lost its race and is unchanged.
    Raises UnknownEvent, and TransitionConflict if a caller expects an impossible source.
    """
    rule = _transition(event)
    for move in moves:
        if move.status not in rule.sources:
            raise TransitionConflict(f"{event} is not possible from {move.status} ({move.id})")
    if not moves:
        return set()
    model = apps.get_model("orchestrator", "Execution")
    return model.objects.swap(rule, moves, now=now, actor=actor, reason=reason)


def transition(
    execution: Execution,
    event: str,
    *,
    now: datetime,
    actor: str,
    reason: Reason | None = None,
    **values: Any,
) -> Execution:
    """Carry out one event on one execution, and return it as it is now.

    Raises TransitionConflict if the row has moved since `execution` was read.
    """
    move = Move(execution.pk, execution.status, execution.attempt, values)
    if not transition_many(event, [move], now=now, actor=actor, reason=reason):
        raise TransitionConflict(
            f"{event}: {execution.pk} is no longer {execution.status} "
            f"at attempt {execution.attempt}"
        )
    execution.refresh_from_db()
    return execution


def _transition(event: str) -> Transition:
    try:
        return TRANSITIONS[event]
    except KeyError:
        raise UnknownEvent(f"No transition is called {event!r}") from None
