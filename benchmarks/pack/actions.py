"""The actions of the benchmarks' pack."""

from __future__ import annotations

from benchmarks import stamps


def noop() -> dict[str, str]:
    return {}


def stamp(*, address: str) -> dict[str, str]:
    stamps.send(address)
    return {}
