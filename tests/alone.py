"""Tests that judge by the clock have the machine to themselves: the other processes of a run wait.

Two files of this directory serve as locks. Who runs a usual test holds `ROOM` together with others;
who must be alone first closes `GATE`, so that nobody else enters, then waits until `ROOM` is empty.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

GATE = Path(__file__)
ROOM = Path(__file__).with_name("conftest.py")


@contextlib.contextmanager
def entered(*, is_alone: bool) -> Iterator[None]:
    """Wait for one's turn, and keep it."""
    how = fcntl.LOCK_EX if is_alone else fcntl.LOCK_SH
    with GATE.open() as gate, ROOM.open() as room:
        fcntl.flock(gate, how)
        fcntl.flock(room, how)
        if not is_alone:
            fcntl.flock(gate, fcntl.LOCK_UN)
        yield
