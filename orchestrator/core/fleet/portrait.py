"""Packs, actions and pauses, as people read them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from orchestrator.core.models.executions import OF_ACTION


def lacking(missing_code: Mapping[str, str]) -> list[str]:
    """`the pack x: why`, for each that a worker's host lacks."""
    return [f"{named(name)}: {why}" for name, why in missing_code.items()]


def named(name: str) -> str:
    """A pack, or an action of one, as people read it."""
    code, _, release = name.partition("@")
    text = f"the {'action' if '.' in code else 'pack'} {code}"
    return f"{text} of release {release}" if release else text


def pauses_of(paused: Mapping[str, datetime], *, now: datetime) -> list[str]:
    """`the queue orders for 12 s`, for each pause of a worker that lasts."""
    return [
        f"{_paused(name)} for {max(1, round((until - now).total_seconds()))} s"
        for name, until in paused.items()
    ]


def _paused(name: str) -> str:
    if name.startswith(OF_ACTION):
        return named(name.removeprefix(OF_ACTION))
    return f"the queue {name}"
