"""The action of the example rules."""

from __future__ import annotations

from typing import Any


def note(*, text: str, about: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the line, so that it is the result of the execution."""
    return {"text": text, "about": about or {}}
