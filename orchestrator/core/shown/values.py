"""The values of facts, for all faces: each face has a renderer for each kind of value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Model

from orchestrator.core.words import Kind


@dataclass(frozen=True)
class State:
    """A status or a state, in its colour."""

    name: str
    kinds: Mapping[str, Kind] | None = None
    """Needed if several apps have a state of this name."""


@dataclass(frozen=True)
class At:
    """A point in time, and a note about it."""

    at: datetime
    note: str = ""


@dataclass(frozen=True)
class Due:
    """A point in time that something waits for."""

    at: datetime
    now: datetime
    note: str = ""
    """Shown instead of the time left, if it does not act."""


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


@dataclass(frozen=True)
class Links:
    """Several rows, each with a page of its own."""

    rows: tuple[Link, ...]


@dataclass(frozen=True)
class Json:
    """A value as its JSON."""

    value: Any


Value = str | int | None | State | At | Due | Link | Search | Coded | Prose | Links | Json
Fact = tuple[str, Value]


def said(facts: Sequence[Fact]) -> list[Fact]:
    """The facts that have a value."""
    return [(name, value) for name, value in facts if value not in (None, "", Links(()))]


@dataclass(frozen=True)
class Happening:
    """One line of a timeline."""

    at: datetime
    after_seconds: float
    """Since the line before."""
    event: str
    to: str
    actor: str
    was: str = ""
    attempt: int | None = None
    reason: str = ""
    why: Value = None
    """The reason as a sentence, if there is one."""
    subject: str = ""
    """The row of the transition, if a timeline is about several rows."""
    processor: str = ""
    """The process that made the transition, if it is known."""
