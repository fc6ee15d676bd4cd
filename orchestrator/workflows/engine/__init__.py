"""Tasks: one run of a template's steps, each step run as executions.

task = engine.request(new, requested_by="ada", now=now)   # a row; the executor does the rest
engine.advance(task.pk, now=now, actor="executor")        # whatever it can do now, it does
engine.resolve_manually(step_id, reason="...", actor="ada", now=now)   # and it goes on
"""

from orchestrator.workflows.engine.advancing import advance
from orchestrator.workflows.engine.cancellation import (
    TaskIsFinal,
    TaskIsNotBlocked,
    TaskIsNotInError,
    cancel,
    cancel_for_pack,
    release,
    resolve,
)
from orchestrator.workflows.engine.outcomes import ResultRefused
from orchestrator.workflows.engine.polling import (
    advance_all,
    any_open,
    bring_forward,
    look,
    note_ended,
)
from orchestrator.workflows.engine.repairs import (
    ReasonMissing,
    StepHasMoved,
    StepIsBusy,
    StepIsFinal,
    UnknownStep,
    cancel_step,
    complete_manually,
    on_behalf_of,
    possible,
    reset_for_retry,
    resolve_manually,
)
from orchestrator.workflows.engine.requests import (
    KeyMissing,
    NewTask,
    TaskExists,
    TaskRefused,
    UnknownTemplate,
    request,
)
from orchestrator.workflows.engine.staleness import (
    Action,
    Detected,
    Stale,
    StaleTask,
    detect_all,
    detect_stale,
    foresee,
)
from orchestrator.workflows.engine.turn import UnknownTask, definition_of

__all__ = [
    "Action",
    "Detected",
    "KeyMissing",
    "NewTask",
    "ReasonMissing",
    "ResultRefused",
    "Stale",
    "StaleTask",
    "StepHasMoved",
    "StepIsBusy",
    "StepIsFinal",
    "TaskExists",
    "TaskIsFinal",
    "TaskIsNotBlocked",
    "TaskIsNotInError",
    "TaskRefused",
    "UnknownStep",
    "UnknownTask",
    "UnknownTemplate",
    "advance",
    "advance_all",
    "any_open",
    "bring_forward",
    "cancel",
    "cancel_for_pack",
    "cancel_step",
    "complete_manually",
    "definition_of",
    "detect_all",
    "detect_stale",
    "foresee",
    "look",
    "note_ended",
    "on_behalf_of",
    "possible",
    "release",
    "request",
    "reset_for_retry",
    "resolve",
    "resolve_manually",
]
