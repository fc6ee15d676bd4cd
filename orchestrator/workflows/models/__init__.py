"""Fields, constraints and reads. Nothing here decides; the verbs do."""

from orchestrator.workflows.models.history import TransitionRecord
from orchestrator.workflows.models.staleness import StalenessDefault, TaskLimit, TaskStaleness
from orchestrator.workflows.models.steps import Step, StepDependency, StepExecution, StepKind
from orchestrator.workflows.models.tasks import Task
from orchestrator.workflows.models.templates import TaskTemplate

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
