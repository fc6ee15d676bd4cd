"""Subjects of investigations: any row of any app that brings its kind of subject."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.apps import apps
from django.db.models import Model

from orchestrator.core import frame
from orchestrator.core.errors import MusterError, NotFound
from orchestrator.core.frame import SubjectKind


class UnknownKind(MusterError):
    """No app brings this kind of subject."""


class UnknownSubject(NotFound):
    """There is nothing with this id."""


@dataclass(frozen=True)
class Subject:
    """The subject of an entry, as it is when the entry is opened."""

    kind: str
    id: UUID
    name: str
    """Its name for people: its action, or its template."""
    state: str
    snapshot: Mapping[str, Any] = field(default_factory=dict)
    """Enough to investigate after the row has changed; secrets redacted."""
    attempt: int | None = None


def kinds() -> dict[str, SubjectKind]:
    """The kinds of subjects that installed apps bring, by name."""
    return {kind.name: kind for kind in frame.collect(lambda app: app.subject_kinds)}


def kind_of(name: str) -> SubjectKind:
    """Return the kind of this name. Raises UnknownKind."""
    known = kinds()
    if name not in known:
        raise UnknownKind(f"Expected one of {', '.join(known)} to investigate, found {name!r:.40}")
    return known[name]


def model_of(kind: SubjectKind) -> type[Model]:
    """The model whose rows these are."""
    return apps.get_model(kind.model)


def take(kind: str, id: UUID, *, now: datetime) -> Subject:
    """Return the subject as it is now. Raises UnknownKind and UnknownSubject."""
    subjects: list[Subject] = kind_of(kind).take([id], now=now)
    if not subjects:
        raise UnknownSubject(f"No {kind} has the id {id}")
    return subjects[0]
