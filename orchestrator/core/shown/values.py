"""What a fact says, whichever face says it: each kind of value has a renderer in each face."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Model
from pydantic import BaseModel, ConfigDict

from orchestrator.core.words import Kind


class Shown(BaseModel):
    """A row as JSON: what the API answers, and what `--json` prints."""

    model_config = ConfigDict(from_attributes=True)


@dataclass(frozen=True)
class State:
    """A status or a state, in its colour."""

    name: str
    kinds: Mapping[str, Kind] | None = None
    """Where several apps have a state of this name."""


@dataclass(frozen=True)
class At:
    """A point in time, and what there is to say of it."""

    at: datetime
    note: str = ""


@dataclass(frozen=True)
class Due:
    """A point in time that something waits for."""

    at: datetime
    now: datetime
    note: str = ""
    """Said instead of how long that is, where it does not act."""


@dataclass(frozen=True)
class Link:
    """Something that has a page of its own."""

    row: Model
    text: str
    note: str = ""


@dataclass(frozen=True)
class Search:
    """A text that other rows of the same model may share."""

    model: type[Model]
    text: str


@dataclass(frozen=True)
class Coded:
    """A sentence, and the code that stands for it."""

    sentence: str
    code: str


@dataclass(frozen=True)
class Prose:
    """A text of ours, with `code` in it."""

    text: str


Value = str | int | None | State | At | Due | Link | Search | Coded | Prose
Fact = tuple[str, Value]


def said(facts: Sequence[Fact]) -> list[Fact]:
    """Those that say something."""
    return [(name, value) for name, value in facts if value not in (None, "")]


@dataclass(frozen=True)
class Happening:
    """One line of a timeline."""

    at: datetime
    after_seconds: float
    """Since the one before."""
    event: str
    to: str
    actor: str
    was: str = ""
    attempt: int | None = None
    reason: str = ""
    why: Value = None
    """The reason as a sentence, where there is one."""
    subject: str = ""
    """Of what it tells, where a timeline is of several."""
    processor: str = ""


def document(shown: BaseModel) -> dict[str, Any]:
    """As `--json` prints it."""
    return shown.model_dump(mode="json")
