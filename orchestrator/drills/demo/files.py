"""The demo's input: the Python files of the standard library that runs it."""

from __future__ import annotations

import hashlib
import os
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Input:
    """The files, and their size in bytes."""

    paths: Sequence[Path]
    size: int

    def __str__(self) -> str:
        return f"{len(self.paths):,} Python files ({self.size / 1e6:.1f} MB)"


def standard_library(*, limit: int | None = None) -> Input:
    """Find the readable `.py` files of the standard library, in order, without installed
    packages."""
    root = Path(sysconfig.get_path("stdlib"))
    paths = sorted(
        path
        for path in root.rglob("*.py")
        if not {"site-packages", "dist-packages"} & set(path.parts)
        and path.is_file()
        and os.access(path, os.R_OK)
    )
    if limit is not None:
        paths = paths[:: max(1, len(paths) // limit)][:limit]
    return Input(paths, sum(path.stat().st_size for path in paths))


def digest(path: Path) -> str:
    """The digest that the action should have computed."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
