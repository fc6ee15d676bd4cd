"""The actions of the benchmarks' pack."""

from __future__ import annotations

from benchmarks import stamps


def stamp(*, address: str) -> dict[str, str]:
    stamps.send(address)
    return {}
