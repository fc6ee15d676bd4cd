"""Investigations of what died or got stuck: opened, annotated, closed. They change nothing else."""

from orchestrator.investigations.closing import (
    EntryIsClosed,
    NothingToChange,
    UnknownEntry,
    annotate,
    close,
)
from orchestrator.investigations.opening import (
    AlreadyOpen,
    keep,
    open_for_executions,
    open_for_tasks,
    open_manually,
)
from orchestrator.investigations.snapshots import of_execution

__all__ = [
    "AlreadyOpen",
    "EntryIsClosed",
    "NothingToChange",
    "UnknownEntry",
    "annotate",
    "close",
    "keep",
    "of_execution",
    "open_for_executions",
    "open_for_tasks",
    "open_manually",
]
