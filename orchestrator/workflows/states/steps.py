"""The life of a step of a task."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from orchestrator.core import words
from orchestrator.core.state_machine.machine import Machine, table


class StepState(enum.StrEnum):
    """The states of a step."""

    PENDING = "pending"
    ENQUEUED = "enqueued"
    IN_PROGRESS = "in_progress"
    WAITING_FOR_INQUIRY = "waiting_for_inquiry"
    ENQUEUED_FOR_ORCHESTRATION = "enqueued_for_orchestration"
    COMPLETE = "complete"
    ERROR = "error"
    WAITING_FOR_RETRY = "waiting_for_retry"
    CANCELLED = "cancelled"
    RESOLVED_MANUALLY = "resolved_manually"


W = StepState

TERMINAL = frozenset({W.COMPLETE, W.CANCELLED, W.RESOLVED_MANUALLY})
ENDED = TERMINAL | {W.ERROR}
OPEN = frozenset(W) - ENDED
SATISFIED = frozenset({W.COMPLETE, W.RESOLVED_MANUALLY})
"""States that let dependent steps begin."""
FAILED = frozenset({W.ERROR, W.CANCELLED})
"""States that keep dependent steps from beginning, unless a batch tolerates them."""
IN_FLIGHT = frozenset(
    {W.ENQUEUED, W.IN_PROGRESS, W.WAITING_FOR_INQUIRY, W.ENQUEUED_FOR_ORCHESTRATION}
)
"""States with an execution whose end is not evaluated yet."""
KINDS = words.kinds(
    info="enqueued enqueued_for_orchestration",
    primary="in_progress",
    success="complete resolved_manually",
    warning="waiting_for_retry waiting_for_inquiry",
    danger="error",
)

WHO_MOVES_IT_ON: Mapping[StepState, str] = {
    W.PENDING: "`advance`, when every parent is complete or resolved",
    W.ENQUEUED: "the executor, which sees its execution start or end",
    W.IN_PROGRESS: "the executor, which sees its execution end",
    W.WAITING_FOR_INQUIRY: "whoever may answer its inquiry, or its time; then the executor",
    W.ENQUEUED_FOR_ORCHESTRATION: "`advance`, which evaluates the result",
    W.COMPLETE: "nobody: terminal",
    W.ERROR: "an operator, who repairs it",
    W.WAITING_FOR_RETRY: "`advance`, when `next_retry_at` has come",
    W.CANCELLED: "nobody: terminal",
    W.RESOLVED_MANUALLY: "nobody: terminal",
}

_REPAIRABLE = (
    "pending enqueued in_progress waiting_for_inquiry enqueued_for_orchestration "
    "waiting_for_retry error"
)

TRANSITIONS = table(
    W,
    ("+enqueue", "pending waiting_for_retry", W.ENQUEUED, "`advance`: it has an execution"),
    ("start", "enqueued", W.IN_PROGRESS, "the executor: a worker has claimed its execution"),
    ("ask", "enqueued", W.WAITING_FOR_INQUIRY, "the executor: its inquiry waits for an answer"),
    (
        "hand_in", "enqueued in_progress waiting_for_inquiry", W.ENQUEUED_FOR_ORCHESTRATION,
        "the executor: its execution has ended",
    ),
    (
        "complete", "enqueued_for_orchestration", W.COMPLETE,
        "`advance`: its execution completed, with a result that fits",
    ),
    ("skip", "pending", W.COMPLETE, "`advance`: its `when` is false"),
    (
        "wait_for_retry", "enqueued_for_orchestration", W.WAITING_FOR_RETRY,
        "`advance`: it failed, and has attempts left",
    ),
    (
        "fail", "pending waiting_for_retry enqueued_for_orchestration", W.ERROR,
        "`advance`: it failed for good, or could not be requested",
    ),
    (
        "+reset", _REPAIRABLE, W.PENDING,
        "an operator, or a worker that has come: its attempts count from 0 again",
    ),
    ("+resolve", _REPAIRABLE, W.RESOLVED_MANUALLY, "an operator: it counts as satisfied"),
    ("+complete_manually", _REPAIRABLE, W.COMPLETE, "an operator, who gives its result"),
    ("+cancel", _REPAIRABLE, W.CANCELLED, "an operator, alone or with its task"),
)  # fmt: skip

STEPS = Machine(
    states=W,
    initial=W.PENDING,
    terminal=TERMINAL,
    ended=ENDED,
    transitions=TRANSITIONS,
    who_moves_it_on=WHO_MOVES_IT_ON,
    history_keys={"step_id": "id", "task_id": "task_id"},
    entered_columns=("state_entered_at",),
    cleared_columns=("next_retry_at",),
    keeps_processor=True,
)
