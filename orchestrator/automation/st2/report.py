"""The report of an import: what it made, changed and left out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.core.packs import Source
from orchestrator.core.packs.source import Where

LEFT_OUT, CHANGED = "left out", "changed"


@dataclass(frozen=True)
class Finding:
    """Something of a pack that is not in the imported one, or has another form there."""

    kind: str
    """LEFT_OUT, or CHANGED."""
    file: str
    line: int
    """0 for the file as a whole."""
    what: str
    reason: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.what}: {self.reason}"


@dataclass
class Report:
    """The outcome of an import."""

    pack: str
    folder: Path
    made: list[str] = field(default_factory=list)
    """Files of the new pack, relative to its folder."""
    findings: list[Finding] = field(default_factory=list)

    def of(self, kind: str) -> list[Finding]:
        found = [each for each in self.findings if each.kind == kind]
        return sorted(found, key=lambda each: (each.file, each.line))

    def document(self) -> dict[str, Any]:
        return {
            "pack": self.pack,
            "folder": str(self.folder),
            "made": self.made,
            "left_out": [vars(each) for each in self.of(LEFT_OUT)],
            "changed": [vars(each) for each in self.of(CHANGED)],
        }


def mapping(value: Any, *where: str | int) -> Mapping[str, Any]:
    """The value, which is a mapping or missing. Raises NotConvertible."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise NotConvertible(f"expected a mapping, found {value!r:.60}", *where)
    return value


class NotConvertible(Exception):
    """Muster has nothing of the same meaning."""

    def __init__(self, reason: str, *where: str | int) -> None:
        super().__init__(reason)
        self.reason, self.where = reason, where


@dataclass
class Item:
    """One file of StackStorm's pack, and what becomes of it."""

    source: Source
    name: str
    """As the report says it: `action isprime`."""
    folder: Path
    """The pack's: files are named relative to it."""
    report: Report

    def has(self, name: str) -> bool:
        """Return True for a file of the pack itself: no link, and nothing beyond its folder."""
        file = self.folder / name
        is_own = file.resolve() == Path(os.path.normpath(file))
        return is_own and file.is_file() and file.resolve().is_relative_to(self.folder)

    def left_out(self, reason: str, *where: str | int) -> None:
        self._note(LEFT_OUT, reason, where)

    def changed(self, reason: str, *where: str | int) -> None:
        self._note(CHANGED, reason, where)

    def _note(self, kind: str, reason: str, where: Where) -> None:
        place = self.source.place(where, reason)
        file = self.source.file.relative_to(self.folder)
        what = f"{self.name}, {'.'.join(map(str, where))}" if where else self.name
        self.report.findings.append(Finding(kind, str(file), place.line, what, reason))
