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
    """Readable `.py` files below the standard library, in order; installed packages are not."""
    root = Path(sysconfig.get_path("stdlib"))
    found = sorted(
        path
        for path in root.rglob("*.py")
        if not {"site-packages", "dist-packages"} & set(path.parts)
        and path.is_file()
        and os.access(path, os.R_OK)
    )
    if limit is not None:
        found = found[:: max(1, len(found) // limit)][:limit]
    return Input(found, sum(path.stat().st_size for path in found))


def digest(path: Path) -> str:
    """What the action should have found, computed here and now."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
