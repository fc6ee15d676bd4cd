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
from orchestrator.executions.evacuation import (
    drain_worker,
    release_stranded,
    settle_lost,
    settle_replaced,
)
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
    dispatch_unclaimed,
    note_completed,
    schedule,
    schedule_backlog,
)
from orchestrator.executions.sweeping import MONITOR, sweep

__all__ = [
    "MONITOR",
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
    "dispatch_unclaimed",
    "drain_worker",
    "end_attempts",
    "finish",
    "give_back",
    "note_completed",
    "release_stranded",
    "request",
    "request_many",
    "run_limit_seconds",
    "schedule",
    "schedule_backlog",
    "settle_lost",
    "settle_replaced",
    "sweep",
    "to_stop",
]
