"""Fields, constraints and reads. Nothing here decides; the verbs do."""

from orchestrator.models.access import ApiToken
from orchestrator.models.catalog import Action, Pack
from orchestrator.models.dead_letters import DLQEntry
from orchestrator.models.executions import Execution, ExecutionEvent, add_actions
from orchestrator.models.fleet import Worker, WorkerEvent
from orchestrator.models.investigations import DLQDashboard, InvestigationQueue
from orchestrator.models.maintenance import Tick
from orchestrator.models.staleness import StalenessDefault, TaskLimit, TaskStaleness
from orchestrator.models.tallies import Tally
from orchestrator.models.workflows import (
    Step,
    StepDependency,
    StepExecution,
    StepKind,
    Task,
    TaskTemplate,
    TransitionRecord,
)

__all__ = [
    "Action",
    "ApiToken",
    "DLQDashboard",
    "DLQEntry",
    "Execution",
    "ExecutionEvent",
    "InvestigationQueue",
    "Pack",
    "StalenessDefault",
    "Step",
    "StepDependency",
    "StepExecution",
    "StepKind",
    "Tally",
    "Task",
    "TaskLimit",
    "TaskStaleness",
    "TaskTemplate",
    "Tick",
    "TransitionRecord",
    "Worker",
    "WorkerEvent",
    "add_actions",
]
