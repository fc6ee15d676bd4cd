"""The time that one execution takes, asked for on an idle system.

An action tells when it started by a datagram with the machine's monotonic clock.

The same on all sides: Muster's action and a rival's task call `send`, the submitter waits in
`Receiver`. CLOCK_MONOTONIC is one clock for all processes of a machine.
"""

from __future__ import annotations

import random
import socket
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

PATIENCE_SECONDS = 20.0


def send(address: str) -> None:
    at = time.monotonic_ns()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        client.sendto(struct.pack("<q", at), address)


def timed(one: Callable[[], int], count: int) -> list[float]:
    """Milliseconds from each call of `one`, which asks for one execution, to the time that it
    returns, in nanoseconds of the monotonic clock."""
    times_ms = []
    for _ in range(count):
        # long enough for the one before to be over, and in step with no timer
        time.sleep(random.uniform(0.02, 0.04))
        asked_at = time.monotonic_ns()
        times_ms.append((one() - asked_at) / 1e6)
    return times_ms


class Receiver:
    """Waits for stamps, on a socket in a directory of its own."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="muster-stamps-")
        self.address = str(Path(self._directory.name) / "socket")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.address)
        self._socket.settimeout(PATIENCE_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._directory.cleanup()

    def receive(self) -> int:
        """The next stamp, in nanoseconds of the monotonic clock. Raises TimeoutError."""
        (at,) = struct.unpack("<q", self._socket.recv(64))
        return int(at)
