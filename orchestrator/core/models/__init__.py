"""Fields, constraints and reads. Nothing here decides; the verbs do."""

from orchestrator.core.models.catalog import Action, Pack
from orchestrator.core.models.counters import HistoryMark, Tally
from orchestrator.core.models.dead_letters import DLQEntry
from orchestrator.core.models.entry_events import DLQEntryEvent
from orchestrator.core.models.executions import Execution, ExecutionEvent, add_actions
from orchestrator.core.models.fleet import Worker, WorkerEvent
from orchestrator.core.models.investigations import DLQDashboard, InvestigationQueue
from orchestrator.core.models.maintenance import Pruning, Tick
from orchestrator.core.models.output import OutputChunk
from orchestrator.core.models.releases import Release, ReleaseAction, ReleaseChunk
from orchestrator.core.models.saved_searches import SavedSearch
from orchestrator.core.models.services import Service
from orchestrator.core.models.traces import TraceContext

__all__ = [
    "Action",
    "DLQDashboard",
    "DLQEntry",
    "DLQEntryEvent",
    "Execution",
    "ExecutionEvent",
    "HistoryMark",
    "InvestigationQueue",
    "OutputChunk",
    "Pack",
    "Pruning",
    "Release",
    "ReleaseAction",
    "ReleaseChunk",
    "SavedSearch",
    "Service",
    "Tally",
    "Tick",
    "TraceContext",
    "Worker",
    "WorkerEvent",
    "add_actions",
]
