"""Packs and actions, as people read them."""

from __future__ import annotations

from collections.abc import Mapping


def lacking(missing_code: Mapping[str, str]) -> list[str]:
    """`the pack x: why`, for each that a worker's host lacks."""
    return [f"{named(name)}: {why}" for name, why in missing_code.items()]


def named(name: str) -> str:
    """A pack, or an action of one, as people read it."""
    return f"the {'action' if '.' in name else 'pack'} {name}"
