"""Fields, constraints and reads. Nothing here decides; the verbs do."""

from orchestrator.workflows.models.staleness import StalenessDefault, TaskLimit, TaskStaleness
from orchestrator.workflows.models.tasks import (
    Step,
    StepDependency,
    StepExecution,
    StepKind,
    Task,
    TaskTemplate,
    TransitionRecord,
)

__all__ = [
    "StalenessDefault",
    "Step",
    "StepDependency",
    "StepExecution",
    "StepKind",
    "Task",
    "TaskLimit",
    "TaskStaleness",
    "TaskTemplate",
    "TransitionRecord",
]
