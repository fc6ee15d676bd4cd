"""The life of an execution: request, schedule, claim, finish, retry, cancel, sweep."""

from orchestrator.core.errors import Refusal
from orchestrator.core.executions.again import (
    NotToBeRunAgain,
    as_again,
    origin_id,
    reruns,
    run_again,
)
from orchestrator.core.executions.attempts import (
    claim,
    end_attempts,
    finish,
    give_back,
    run_limit_seconds,
    stop_limit_seconds,
)
from orchestrator.core.executions.cancellation import AlreadyOver, cancel
from orchestrator.core.executions.checking import BOUNDS
from orchestrator.core.executions.dispatching import dispatch_again, dispatch_unclaimed
from orchestrator.core.executions.ended import RETRY_AFTER, Ended
from orchestrator.core.executions.holding import answer, hold
from orchestrator.core.executions.holdings import (
    disown,
    recorded,
    set_run_deadlines,
    started,
    still_offered,
    still_started,
    to_stop,
)
from orchestrator.core.executions.lost_workers import drain_worker, settle_lost, settle_replaced
from orchestrator.core.executions.new_execution import NewExecution
from orchestrator.core.executions.opening import Contents, opened
from orchestrator.core.executions.requests import (
    IdempotencyConflict,
    IdempotencyKeyFreed,
    RequestRefused,
    UnknownExecution,
    problems,
    request,
    request_many,
    require_permission,
)
from orchestrator.core.executions.scheduling import (
    note_completed,
    note_ended,
    schedule,
    schedule_backlog,
)
from orchestrator.core.executions.subjects import subjects
from orchestrator.core.executions.sweeping import MONITOR, bring_forward, sweep
from orchestrator.core.executions.unclaimed import (
    Expired,
    expire,
    release_from,
    release_paused,
    release_stranded,
    release_waiting,
)

__all__ = [
    "BOUNDS",
    "MONITOR",
    "RETRY_AFTER",
    "AlreadyOver",
    "Contents",
    "Ended",
    "Expired",
    "IdempotencyConflict",
    "IdempotencyKeyFreed",
    "NewExecution",
    "NotToBeRunAgain",
    "Refusal",
    "RequestRefused",
    "UnknownExecution",
    "answer",
    "as_again",
    "bring_forward",
    "cancel",
    "claim",
    "disown",
    "dispatch_again",
    "dispatch_unclaimed",
    "drain_worker",
    "end_attempts",
    "expire",
    "finish",
    "give_back",
    "hold",
    "note_completed",
    "note_ended",
    "opened",
    "origin_id",
    "problems",
    "recorded",
    "release_from",
    "release_paused",
    "release_stranded",
    "release_waiting",
    "request",
    "request_many",
    "require_permission",
    "reruns",
    "run_again",
    "run_limit_seconds",
    "schedule",
    "schedule_backlog",
    "set_run_deadlines",
    "settle_lost",
    "settle_replaced",
    "started",
    "still_offered",
    "still_started",
    "stop_limit_seconds",
    "subjects",
    "sweep",
    "to_stop",
]
