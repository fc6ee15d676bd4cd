"""Packs and actions, as people read them."""

from __future__ import annotations

from collections.abc import Mapping


def lacking(missing_code: Mapping[str, str]) -> list[str]:
    """What is said of a worker that lacks code: `lacks the pack x: why`, for each."""
    return [f"lacks {named(name)}: {why}" for name, why in missing_code.items()]


def named(name: str) -> str:
    """A pack, or an action of one, as people read it."""
    return f"the {'action' if '.' in name else 'pack'} {name}"
