"""Graphs of steps, as mappings from each step's name to the names that it depends on.

Pure functions: no database, no models.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

Parents = Mapping[str, Collection[str]]


def cycle(parents: Parents) -> list[str] | None:
    """Find one cycle: each name followed by one that depends on it, with the first one again at the
    end; None if there is none."""
    try:
        TopologicalSorter(parents).prepare()
    except CycleError as error:
        names: list[str] = error.args[1]
        return names
    return None


def described(cycle: Iterable[str]) -> str:
    """Write a cycle for people: `a -> b -> a`, where `b` depends on `a`."""
    return " -> ".join(cycle)


def ancestors(parents: Parents, name: str) -> set[str]:
    """All direct and indirect dependencies of `name`. Safe with cycles."""
    names: set[str] = set()
    waiting = list(parents.get(name, ()))
    while waiting:
        parent = waiting.pop()
        if parent not in names:
            names.add(parent)
            waiting.extend(parents.get(parent, ()))
    return names


def in_order(parents: Parents) -> list[str]:
    """All names, each after those that it depends on. Raises graphlib.CycleError."""
    return list(TopologicalSorter(parents).static_order())
