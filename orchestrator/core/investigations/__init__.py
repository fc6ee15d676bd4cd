"""Investigations of what died or got stuck: open, annotate, close. They change nothing else."""

from orchestrator.core.investigations.closing import (
    GIVEN_NAME_MAX,
    TEXT_MAX,
    EntryIsClosed,
    NothingToChange,
    UnknownEntry,
    annotate,
    close,
)
from orchestrator.core.investigations.opening import (
    AlreadyOpen,
    keep,
    of_subject,
    open_for,
    open_manually,
)
from orchestrator.core.investigations.subjects import (
    Subject,
    UnknownKind,
    UnknownSubject,
    kind_of,
    kinds,
    model_of,
)

__all__ = [
    "GIVEN_NAME_MAX",
    "TEXT_MAX",
    "AlreadyOpen",
    "EntryIsClosed",
    "NothingToChange",
    "Subject",
    "UnknownEntry",
    "UnknownKind",
    "UnknownSubject",
    "annotate",
    "close",
    "keep",
    "kind_of",
    "kinds",
    "model_of",
    "of_subject",
    "open_for",
    "open_manually",
]
