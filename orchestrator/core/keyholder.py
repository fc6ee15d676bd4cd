"""The seam for keys: who knows them, who may use them, and what their values are.

Core refers to keys and never stores a value. `orchestrator.access` fills this seam in its
`AppConfig.ready`. While nobody does, a request whose parameters refer to a key is refused, and
nothing is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Wanted:
    """A key that an execution refers to."""

    reference: str
    """As `owner/name`."""
    action_ref: str
    """The action that gets its value."""
    owner: int
    """The requester of the execution, as a number of the authorizer: the execution's
    `key_owner`."""


@dataclass(frozen=True)
class Opened:
    """The result for one wanted key: its value, or one sentence that says why there is none."""

    value: str = ""
    refusal: str = ""

    def __repr__(self) -> str:
        return f"Opened(refusal={self.refusal!r})"


class Keyholder(Protocol):
    """Takes many keys at once: both functions need one query for any number."""

    def refusals(self, wanted: Collection[Wanted]) -> Mapping[Wanted, str]:
        """Say why some of these keys may not be used; the others may. Opens nothing."""
        ...

    def open(self, wanted: Collection[Wanted]) -> Mapping[Wanted, Opened]:
        """Open these keys. Called for claimed executions alone, in the parent of a worker."""
        ...


class Nobody:
    """Holds no keys."""

    WHY = "this installation has no keys"

    def refusals(self, wanted: Collection[Wanted]) -> Mapping[Wanted, str]:
        return dict.fromkeys(wanted, self.WHY)

    def open(self, wanted: Collection[Wanted]) -> Mapping[Wanted, Opened]:
        return dict.fromkeys(wanted, Opened(refusal=f"It refers to a key, and {self.WHY}."))


_make: Callable[[], Keyholder] = Nobody


def hold(make: Callable[[], Keyholder]) -> Callable[[], Keyholder]:
    """Fill the seam; returns what filled it before. What makes the holder is called when a key is
    needed: few processes ever need one."""
    global _make
    before, _make = _make, make
    return before


def holder() -> Keyholder:
    """Return who holds the keys."""
    return _make()
