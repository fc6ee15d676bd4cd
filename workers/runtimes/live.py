"""The newest output of running actions, on its way to the worker's parent.

Whoever launches an action, a child of the pool or a thread, sends what its streams bring through
one socket that all of them share; see `workers.live_output` for its other end. A message is one
datagram, so many may write. Nobody waits: what the socket does not take is sent a second later, and
what gets too much is dropped, the oldest first. An execution that ends within a second sends
nothing.
"""

from __future__ import annotations

import math
import os
import select
import socket
import struct
import time
from uuid import UUID

from orchestrator.core.live_output import CHUNK_BYTES, KEPT_BYTES
from orchestrator.core.models.output import STREAMS
from workers import hiding
from workers.runtimes.protocol import Call

HEADER = struct.Struct(">16sIBQ")
"""Execution, attempt, number of the stream, offset."""
INTERVAL_SECONDS = 1.0
LAST_SECONDS = 0.2
"""The longest wait for a parent that is slow to take the end of an output."""
SOCKET_BYTES = 1_048_576

_ways: list[int] = []
"""The descriptor that leads to the parent: one, or none outside of a worker."""


def connect() -> int:
    """Make the socket, before the pool forks; returns the descriptor of the parent's end."""
    receiver, sender = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
    for each in (receiver, sender):
        each.setblocking(False)
    _ways[:] = [sender.detach()]
    return receiver.detach()


def of(call: Call, stream: str, *, begun_at: float) -> Live | None:
    """The way of one stream of this call; None if nobody is there to take it."""
    if not _ways:
        return None
    return Live(_ways[0], UUID(call.execution_id), call.attempt, stream, begun_at=begun_at)


class Live:
    """The newest output of one stream of an attempt."""

    def __init__(
        self,
        way: int,
        execution_id: UUID,
        attempt: int,
        stream: str,
        *,
        begun_at: float,
    ) -> None:
        """`begun_at`: by `time.monotonic`, when the action began."""
        self._way = way
        self._head = (execution_id.bytes, attempt, STREAMS.index(stream))
        self._first_at = self._next_at = begun_at + INTERVAL_SECONDS
        self._secrets = hiding.streams()
        self._raw = bytearray()
        """As it was written, since the last time."""
        self._lost_bytes = 0
        """Of `_raw`: it is bounded."""
        self._suspect_bytes = 0
        """The number of the next bytes that may be the rest of a secret whose beginning was
        dropped."""
        self._unsent = bytearray()
        """Masked."""
        self._offset = 0
        """The place in its stream at which `_unsent` begins."""

    def feed(self, chunk: bytes) -> None:
        """Take what the action wrote."""
        self._raw += chunk
        if (over := len(self._raw) - KEPT_BYTES) > 0:
            del self._raw[:over]
            self._lost_bytes += over

    @property
    def due_at(self) -> float:
        """The time at which `send` is to be called."""
        return self._next_at if self._raw or self._unsent else math.inf

    def send(self, now: float) -> None:
        """Send what has gathered, if it is time."""
        if now < self.due_at:
            return
        self._next_at = now + INTERVAL_SECONDS
        self._mask(is_end=False)
        self._send_all(wait_seconds=0)

    def end(self) -> None:
        """Send the rest, unless the execution was so short that nobody can have followed it."""
        if time.monotonic() < self._first_at:
            return
        self._mask(is_end=True)
        self._send_all(wait_seconds=LAST_SECONDS)

    def _mask(self, *, is_end: bool) -> None:
        """Move what was written to what is to be sent, without the secrets in it."""
        if self._lost_bytes:
            self._begin_after_gap()
        masked = bytes(self._raw)
        self._raw.clear()
        for secrets in self._secrets:
            masked = secrets.feed(masked) + (secrets.end() if is_end else b"")
        if self._suspect_bytes:  # then nothing is unsent
            suspect = masked[: self._suspect_bytes]
            self._suspect_bytes -= len(suspect)
            self._offset += len(suspect)
            masked = masked[len(suspect) :]
        self._unsent += masked
        if (over := len(self._unsent) - KEPT_BYTES) > 0:
            self._drop(over)

    def _begin_after_gap(self) -> None:
        self._drop(len(self._unsent))
        self._offset += self._lost_bytes + sum(each.held_bytes for each in self._secrets)
        self._lost_bytes = 0
        again = [each.after_gap() for each in self._secrets]
        self._secrets = [stream for stream, _ in again]
        self._suspect_bytes = sum(suspect for _, suspect in again)

    def _drop(self, size: int) -> None:
        del self._unsent[:size]
        self._offset += size

    def _send_all(self, *, wait_seconds: float) -> None:
        """Send as much as the socket takes, or nobody takes in this time."""
        until = time.monotonic() + wait_seconds
        while self._unsent:
            piece = bytes(self._unsent[:CHUNK_BYTES])
            try:
                os.write(self._way, HEADER.pack(*self._head, self._offset) + piece)
            except BlockingIOError:
                left = until - time.monotonic()
                if left <= 0:
                    return
                select.select([], [self._way], [], left)
            except OSError:  # the parent is gone, and this process goes with it
                return
            else:
                self._drop(len(piece))
