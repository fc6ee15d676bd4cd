"""What investigations are about: any row of any app that brings its kind of subject."""

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
    """What an entry is about, as it is when the entry is opened."""

    kind: str
    id: UUID
    name: str
    """What people call it: its action, or its template."""
    state: str
    snapshot: Mapping[str, Any] = field(default_factory=dict)
    """Enough to investigate when the row has moved on; secrets redacted."""
    attempt: int | None = None


def kinds() -> dict[str, SubjectKind]:
    """What installed apps bring, by name."""
    return {kind.name: kind for kind in frame.collect(lambda app: app.subject_kinds)}


def kind_of(name: str) -> SubjectKind:
    """Raises UnknownKind."""
    known = kinds()
    if name not in known:
        raise UnknownKind(f"Expected one of {', '.join(known)} to investigate, found {name!r:.80}")
    return known[name]


def model_of(kind: SubjectKind) -> type[Model]:
    """The model whose rows these are."""
    return apps.get_model(kind.model)


def take(kind: str, id: UUID, *, now: datetime) -> Subject:
    """The subject as it is now. Raises UnknownKind and UnknownSubject."""
    found: list[Subject] = kind_of(kind).take([id], now=now)
    if not found:
        raise UnknownSubject(f"No {kind} has the id {id}")
    return found[0]
