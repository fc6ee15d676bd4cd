"""The pages of docs/ that are generated from the code, so that they stay correct."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from orchestrator.core import frame
from orchestrator.core.frame import Named


def pages() -> Mapping[str, Named]:
    """Every generated page, by its path below docs/."""
    return {path: page for app in frame.ours() for path, page in app.reference_pages.items()}


def outdated(root: Path) -> list[str]:
    """The pages below `root` that differ from the code."""
    return [name for name, page in pages().items() if _read(root / name) != page()]


def write(root: Path) -> list[str]:
    """Write the pages that are out of date; returns their paths."""
    names = outdated(root)
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(pages()[name](), encoding="utf-8")
    return names


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None
