"""State machines: states, the transitions between them, and the columns that hold them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from orchestrator.core.errors import Conflict, MusterError


class UnknownEvent(MusterError):
    """No transition has this name."""


class TransitionConflict(Conflict):
    """Another process got there first: the row is no longer what the caller saw."""

    kind = "transition-conflict"
    retry_after_seconds = 1


@dataclass(frozen=True)
class Transition:
    """One row of a table: an event, its source states, its target, and who triggers it."""

    event: str
    sources: frozenset[enum.StrEnum]
    target: enum.StrEnum
    who: str
    new_attempt: bool = False
    """True: the fence rises, so that anything from an earlier attempt is refused from then on."""


class Move(NamedTuple):
    """The compare-and-swap of one row: what is expected, and what is written."""

    id: UUID
    status: enum.StrEnum | str
    """The status, or state, that the caller saw."""
    attempt: int
    """The attempt, or whatever else is the fence, that the caller saw."""
    values: Mapping[str, Any] = MappingProxyType({})
    """Other columns to set, by field name; all moves of one call name the same ones."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One table of transitions, and the columns that they write."""

    states: type[enum.StrEnum]
    initial: enum.StrEnum
    terminal: frozenset[enum.StrEnum]
    """Final states: the database lets nobody leave them."""
    ended: frozenset[enum.StrEnum]
    """States with an `ended_at`: the terminal ones, and those that only a repair can leave."""
    transitions: Mapping[str, Transition]
    who_moves_it_on: Mapping[Any, str]

    column: str = "state"
    """Holds the state; its history calls it `from_...` and `to_...`."""
    fence: str = "fence"
    """Only grows; compared together with the state."""
    history_keys: Mapping[str, str] = field(default_factory=dict)
    """Columns of history copied from the row itself: column of history -> column of the row."""
    reason_column: str | None = None
    """Takes the reason of the last transition that had one."""
    entered_columns: tuple[str, ...] = ()
    """Take the time of every transition."""
    stamps: Mapping[Any, str] = field(default_factory=dict)
    """Columns that take the time at which a state was entered."""
    cleared_columns: tuple[str, ...] = ()
    """Set to NULL by every transition that does not set them."""
    keeps_history: bool = True
    """False: the row's own times tell everything, and it has no history."""
    keeps_processor: bool = False
    """True: the history names the process that wrote it."""
    waits_for_locks: bool = True
    """True: a batch waits for rows that another transaction holds. False: it skips them."""

    def rule(self, event: str) -> Transition:
        """Return the transition of this event. Raises UnknownEvent."""
        try:
            return self.transitions[event]
        except KeyError:
            raise UnknownEvent(f"No transition is called {event!r}") from None

    def way(self, *events: str) -> tuple[Transition, ...]:
        """The transitions of these events, one after the other.

        Raises UnknownEvent, and TransitionConflict if one does not follow from the one before.
        """
        rules = tuple(self.rule(event) for event in events)
        for before, after in pairwise(rules):
            if before.target not in after.sources:
                raise TransitionConflict(f"{after.event} is not possible from {before.target}")
        return rules

    def allows(self, event: str, state: enum.StrEnum | str) -> bool:
        """Return True if `event` may happen in `state`."""
        return self.states(state) in self.rule(event).sources


def table(
    states: type[enum.StrEnum], *rows: tuple[str, str, enum.StrEnum, str]
) -> Mapping[str, Transition]:
    """Build transitions from rows of event (with `+` in front if it raises the fence), sources,
    target, and who triggers it."""
    transitions = {}
    for event, sources, target, who in rows:
        name = event.removeprefix("+")
        transitions[name] = Transition(
            name, frozenset(map(states, sources.split())), target, who, event.startswith("+")
        )
    return MappingProxyType(transitions)
