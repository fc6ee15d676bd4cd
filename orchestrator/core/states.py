"""The life of an execution. See `docs/state-machine.md`, which is generated from here."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from uuid import UUID

from orchestrator.core import words
from orchestrator.core.state_machine.machine import Machine, table

AttemptKey = tuple[UUID, int]
"""An execution's id and the number of one of its attempts: what a dispatch names."""


class ExecutionStatus(enum.StrEnum):
    """The statuses of an execution."""

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


class Lane(enum.StrEnum):
    """The lanes of a queue."""

    INPUT = "input"
    RETRY = "retry"
    """Of executions that were started before and lost: see `orchestrator.queues`."""


S = ExecutionStatus

TERMINAL = frozenset({S.COMPLETED, S.FAILED, S.TIMEOUT, S.CANCELLED, S.ABANDONED})
OPEN = frozenset(S) - TERMINAL
KINDS = words.kinds(
    info="scheduled",
    primary="running",
    success="completed",
    warning="scheduling canceling",
    danger="failed timeout abandoned",
)

WHO_MOVES_IT_ON: Mapping[ExecutionStatus, str] = {
    S.REQUESTED: "the executor, by the message `execution.requested` or by looking every second",
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

TRANSITIONS = table(
    S,
    (
        "+schedule", "requested scheduling", S.SCHEDULED,
        "executor, or who accepts it; sets worker and start_by",
    ),
    ("wait", "requested", S.SCHEDULING, "executor; sets wait_reason and next_retry_at"),
    ("claim", "scheduled", S.RUNNING, "the worker: this incarnation, before start_by"),
    ("complete", "running canceling", S.COMPLETED, "the worker"),
    ("fail", "running canceling", S.FAILED, "the worker: the action failed"),
    ("time_out", "running", S.TIMEOUT, "the worker's limit, or the sweep after it"),
    ("expire", "scheduled", S.FAILED, "DLQ drain or sweep: never started"),
    (
        "reject", "requested scheduling", S.FAILED,
        "executor: no worker available, invalid, deadline passed, refused by a policy",
    ),
    (
        "give_back", "scheduled running", S.REQUESTED,
        "executor or worker: it did not begin, and that is known, or its worker had to stop and it "
        "is idempotent; counts for no policy",
    ),
    (
        "retry", "scheduled running", S.REQUESTED,
        "sweep, drain or worker, when the policy allows; retry_count + 1",
    ),
    (
        "defer", "running", S.REQUESTED,
        "the worker: the action said that it cannot begin now; sets next_retry_at, counts for no "
        "policy",
    ),
    (
        "answer", "scheduling", S.COMPLETED,
        "executor: what it waited for has come, such as a person's answer; no worker ran it",
    ),
    ("cancel", "requested scheduling scheduled", S.CANCELLED, "api"),
    ("request_cancel", "running", S.CANCELING, "api"),
    ("confirm_cancel", "canceling", S.CANCELLED, "the worker, or the sweep after it"),
    (
        "abandon", "running canceling", S.ABANDONED,
        "staleness check or worker: the process is lost, the outcome unknown",
    ),
)  # fmt: skip

AGAIN = ("give_back", "retry", "defer")
"""The events after which an execution waits for its next attempt."""

EXECUTIONS = Machine(
    states=S,
    initial=S.REQUESTED,
    terminal=TERMINAL,
    ended=TERMINAL,
    transitions=TRANSITIONS,
    who_moves_it_on=WHO_MOVES_IT_ON,
    column="status",
    fence="attempt",
    history_keys={"execution_id": "id"},
    reason_column="reason",
    stamps={
        S.SCHEDULED: "scheduled_at",
        S.RUNNING: "started_at",
        S.CANCELING: "cancel_requested_at",
    },
    # one locked row must not delay a batch of others past their deadlines
    waits_for_locks=False,
)
