"""The life of an execution: request, schedule, claim, finish, retry, cancel, sweep."""

from orchestrator.executions.attempts import (
    Ended,
    claim,
    end_attempts,
    finish,
    give_back,
    run_limit_seconds,
)
from orchestrator.executions.cancellation import AlreadyOver, cancel, to_stop
from orchestrator.executions.requests import (
    IdempotencyConflict,
    NewExecution,
    Refusal,
    RequestRefused,
    UnknownExecution,
    request,
    request_many,
)
from orchestrator.executions.scheduling import (
    dispatch_again,
    note_completed,
    schedule,
    schedule_backlog,
)
from orchestrator.executions.sweeping import settle_lost, sweep

__all__ = [
    "AlreadyOver",
    "Ended",
    "IdempotencyConflict",
    "NewExecution",
    "Refusal",
    "RequestRefused",
    "UnknownExecution",
    "cancel",
    "claim",
    "dispatch_again",
    "end_attempts",
    "finish",
    "give_back",
    "note_completed",
    "request",
    "request_many",
    "run_limit_seconds",
    "schedule",
    "schedule_backlog",
    "settle_lost",
    "sweep",
    "to_stop",
]
