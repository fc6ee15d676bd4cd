"""The life of a task: one run of a task template."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from orchestrator.core import words
from orchestrator.core.state_machine.machine import Machine, table


class TaskState(enum.StrEnum):
    """The states of a task."""

    PENDING = "pending"
    INITIALIZING = "initializing"
    ENQUEUING_STEPS = "enqueuing_steps"
    STEPS_IN_PROCESS = "steps_in_process"
    EVALUATING_RESULTS = "evaluating_results"
    WAITING_FOR_DEPENDENCIES = "waiting_for_dependencies"
    WAITING_FOR_RETRY = "waiting_for_retry"
    BLOCKED_BY_FAILURES = "blocked_by_failures"
    COMPLETE = "complete"
    ERROR = "error"
    CANCELLED = "cancelled"
    RESOLVED_MANUALLY = "resolved_manually"


T = TaskState

TERMINAL = frozenset({T.COMPLETE, T.CANCELLED, T.RESOLVED_MANUALLY})
ENDED = TERMINAL | {T.ERROR}
OPEN = frozenset(T) - ENDED
KINDS = words.kinds(
    info="initializing enqueuing_steps evaluating_results",
    primary="steps_in_process waiting_for_dependencies",
    success="complete resolved_manually",
    warning="waiting_for_retry",
    danger="blocked_by_failures error",
)

WHO_MOVES_IT_ON: Mapping[TaskState, str] = {
    T.PENDING: "the executor, by the message `task.requested` or by looking every second",
    T.INITIALIZING: "`advance`, in the same transaction",
    T.ENQUEUING_STEPS: "`advance`, in the same transaction",
    T.STEPS_IN_PROCESS: "`advance`, when an execution of a step has ended",
    T.EVALUATING_RESULTS: "`advance`, in the same transaction",
    T.WAITING_FOR_DEPENDENCIES: "`advance`, when an execution of a step has ended",
    T.WAITING_FOR_RETRY: "`advance`, when `next_retry_at` has come",
    T.BLOCKED_BY_FAILURES: "an operator, who repairs a step, resolves the task or cancels it",
    T.COMPLETE: "nobody: terminal",
    T.ERROR: "an operator, who repairs a step, releases the task or cancels it",
    T.CANCELLED: "nobody: terminal",
    T.RESOLVED_MANUALLY: "nobody: terminal",
}

_OPEN = " ".join(state for state in T if state in OPEN)

TRANSITIONS = table(
    T,
    ("+initialize", "pending", T.INITIALIZING, "`advance`: its steps are made"),
    (
        "+enqueue_steps",
        "initializing evaluating_results waiting_for_retry blocked_by_failures error",
        T.ENQUEUING_STEPS, "`advance`: steps are ready, or one was repaired",
    ),
    ("+process_steps", "enqueuing_steps", T.STEPS_IN_PROCESS, "`advance`: they have executions"),
    (
        "+evaluate", "steps_in_process waiting_for_dependencies", T.EVALUATING_RESULTS,
        "`advance`: steps have ended",
    ),
    (
        "+wait_for_dependencies", "initializing evaluating_results", T.WAITING_FOR_DEPENDENCIES,
        "`advance`: what is left waits for steps in process",
    ),
    (
        "+wait_for_retry", "steps_in_process evaluating_results", T.WAITING_FOR_RETRY,
        "`advance`: nothing is in process, and a failed step has attempts left",
    ),
    (
        "+block", "evaluating_results", T.BLOCKED_BY_FAILURES,
        "`advance`: nothing can go on, and a step has failed for good",
    ),
    (
        "+complete", "initializing evaluating_results", T.COMPLETE,
        "`advance`: every step is satisfied, or there are none",
    ),
    (
        "+fail", "enqueuing_steps blocked_by_failures", T.ERROR,
        "`advance`: its steps cannot be run as they depend on each other",
    ),
    ("+expire", _OPEN, T.ERROR, "staleness detection: too long in one state, or altogether"),
    (
        "+give_up", _OPEN, T.ERROR,
        "the executor: it could not be advanced, or two executors died of it",
    ),
    (
        "+release", "error", T.WAITING_FOR_RETRY,
        "an operator: it is advanced again, as it is or with a step repaired",
    ),
    ("+resolve", "blocked_by_failures", T.RESOLVED_MANUALLY, "an operator"),
    ("+cancel", f"{_OPEN} error", T.CANCELLED, "api"),
)  # fmt: skip

TASKS = Machine(
    states=T,
    initial=T.PENDING,
    terminal=TERMINAL,
    ended=ENDED,
    transitions=TRANSITIONS,
    who_moves_it_on=WHO_MOVES_IT_ON,
    history_keys={"task_id": "id"},
    entered_columns=("state_entered_at", "clock_started_at"),
    cleared_columns=("next_retry_at", "advance_tries"),
    keeps_processor=True,
)
