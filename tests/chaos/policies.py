"""The policies of every storm, by the action that each limits."""

from __future__ import annotations

from collections.abc import Mapping

LIMITS: Mapping[str, int] = {"chaos.fails_again": 2, "chaos.defers": 2}
"""The most at once. Both come again and again: retries and deferrals pass the same door."""


def documents() -> list[dict[str, object]]:
    """What the client makes of them."""
    return [
        {"ref": ref.partition(".")[2], "scope": "action", "target": ref, "limit": limit}
        for ref, limit in LIMITS.items()
    ]
