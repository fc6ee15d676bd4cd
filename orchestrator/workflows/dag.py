"""Graphs of steps, as mappings from each step's name to the names that it depends on.

Pure functions: no database, no models.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

Parents = Mapping[str, Collection[str]]


def cycle(parents: Parents) -> list[str] | None:
    """One cycle, each name followed by one that depends on it and the first one again at the end;
    None if there is none."""
    try:
        TopologicalSorter(parents).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return None


def told(cycle: Iterable[str]) -> str:
    """A cycle as people read it: `a -> b -> a`, where `b` depends on `a`."""
    return " -> ".join(cycle)


def ancestors(parents: Parents, name: str) -> set[str]:
    """All that must be over before `name` begins, however far above. Safe with cycles."""
    found: set[str] = set()
    waiting = list(parents.get(name, ()))
    while waiting:
        parent = waiting.pop()
        if parent not in found:
            found.add(parent)
            waiting.extend(parents.get(parent, ()))
    return found


def in_order(parents: Parents) -> list[str]:
    """Every name after all that it depends on. Raises graphlib.CycleError."""
    return list(TopologicalSorter(parents).static_order())
