"""The evidence of an investigation: its subject when it was opened, now, and what differs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.console import draw
from orchestrator.console.look import Look
from orchestrator.core import investigations
from orchestrator.core.models import DLQEntry
from orchestrator.core.redaction import redacted
from orchestrator.core.shown import investigations as shown

ROWS_MAX = 200
TEXT_MAX = 300
DEPTH_MAX = 6
GONE = "-"


@dataclass(frozen=True)
class Line:
    """A value then and now."""

    name: str
    then: str
    now: str

    @property
    def differs(self) -> bool:
        return self.then != self.now


@dataclass(frozen=True)
class Evidence:
    """All values of a subject, those that differ first."""

    lines: list[Line]
    is_gone: bool
    """The subject is not there any more."""
    more: int
    """Values that are not listed."""

    @property
    def differing(self) -> int:
        return sum(line.differs for line in self.lines)


def of(entry: DLQEntry, look: Look) -> Evidence:
    """Compare the subject with what was kept of it."""
    then = dict(_flat(shown.snapshot(entry, seen_by=look.user)))
    now, is_gone = _now(entry, look)
    names = [*then, *(name for name in now if name not in then)]
    lines = [
        Line(name, _text(then.get(name, GONE)), GONE if is_gone else _text(now.get(name, GONE)))
        for name in names
    ]
    lines.sort(key=lambda line: not line.differs)
    return Evidence(lines[:ROWS_MAX], is_gone, max(0, len(lines) - ROWS_MAX))


def _now(entry: DLQEntry, look: Look) -> tuple[dict[str, Any], bool]:
    kind = investigations.kinds().get(entry.subject_kind)
    if kind is None or entry.subject_id is None:
        return {}, False
    found: list[investigations.Subject] = kind.take([entry.subject_id], now=look.now)
    if not found:
        return {}, True
    snapshot = redacted(dict(found[0].snapshot))
    return dict(_flat(shown.of_subject(snapshot, entry, seen_by=look.user))), False


def _flat(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """The values inside of a JSON value, each with the path to it."""
    parts: Any = ()
    if isinstance(value, Mapping) and value and depth < DEPTH_MAX:
        parts = value.items()
    elif isinstance(value, list) and value and depth < DEPTH_MAX:
        parts = enumerate(value)
    else:
        yield name or "value", value
    for key, each in parts:
        yield from _flat(each, f"{name}.{key}" if name else str(key), depth + 1)


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = draw.printable(text)
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]} …"
