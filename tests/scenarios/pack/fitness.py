"""A health check that fails as long as a file says so."""

from __future__ import annotations

import os
from pathlib import Path


def is_fit() -> str | None:
    path = Path(os.environ.get("UNFIT_FILE", "/nonexistent"))
    return path.read_text() if path.exists() else None
