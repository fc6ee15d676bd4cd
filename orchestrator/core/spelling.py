"""The names that may be meant by a name that nothing has: the known ones that are spelled most
alike."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

CLOSE = 0.6
"""The least likeness of two words for one to be offered for the other."""


def nearest(typed: str, known: Iterable[str], *, most: int, least: float = CLOSE) -> list[str]:
    """The names that are most like what was typed, the likest first; none if nothing is like it."""
    return difflib.get_close_matches(typed, list(known), n=most, cutoff=least)


def near(typed: str, known: Iterable[str], *, least: float = CLOSE) -> str | None:
    """The name that is most like what was typed; None if nothing is like it."""
    return next(iter(nearest(typed, known, most=1, least=least)), None)
