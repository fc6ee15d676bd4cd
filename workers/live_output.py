"""Live output of what a worker runs: from the processes that launch actions into the database.

One thread takes what comes, at any time. Another writes it at most once a second, all streams in
one statement. The finisher writes the rest before it records an end, so whoever sees the end finds
all of the output. While the database is away the newest of each stream is kept here, and the oldest
dropped: nothing waits for it, and memory is bounded.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from django.db import Error as DatabaseError
from django.db import connections

from orchestrator.core import clock, live_output, outages
from orchestrator.core.live_output import CHUNK_BYTES, KEPT_BYTES, Before, Piece
from orchestrator.core.models.output import STREAMS
from workers.runtimes import live

if TYPE_CHECKING:
    from orchestrator.core.states import AttemptKey
    from workers.host import Host

log = outages.get_logger(__name__)

WRITE_EVERY_SECONDS = 1.0
DATAGRAM_BYTES = live.HEADER.size + CHUNK_BYTES


class Tail:
    """The newest output of one stream: what is to be written, and where what is stored begins."""

    def __init__(self, key: AttemptKey, stream: str) -> None:
        self.key, self.stream = key, stream
        self.unwritten: deque[tuple[int, bytes]] = deque()
        self._unwritten_bytes = 0
        self._stored: deque[tuple[int, int]] = deque()
        """Offset and size of the chunks in the database."""
        self._stored_bytes = 0

    def add(self, offset: int, content: bytes) -> None:
        self.unwritten.append((offset, content))
        self._unwritten_bytes += len(content)
        self._drop_oldest()

    def take(self) -> list[Piece]:
        """Take the pieces that are to be written, with neighbours put together; they are no longer
        here."""
        joined: list[tuple[int, bytearray]] = []
        for offset, content in self.unwritten:
            end = joined[-1][0] + len(joined[-1][1]) if joined else -1
            if offset == end and len(joined[-1][1]) + len(content) <= CHUNK_BYTES:
                joined[-1][1].extend(content)
            else:
                joined.append((offset, bytearray(content)))
        self.unwritten.clear()
        self._unwritten_bytes = 0
        return [Piece(*self.key, self.stream, offset, bytes(each)) for offset, each in joined]

    def put_back(self, pieces: Iterable[Piece]) -> None:
        """Keep what could not be written, as long as there is room."""
        for piece in reversed(list(pieces)):
            self.unwritten.appendleft((piece.offset, piece.content))
            self._unwritten_bytes += len(piece.content)
        self._drop_oldest()

    def _drop_oldest(self) -> None:
        while self._unwritten_bytes - len(self.unwritten[0][1]) >= KEPT_BYTES:
            self._unwritten_bytes -= len(self.unwritten.popleft()[1])

    def note_written(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            self._stored.append((piece.offset, len(piece.content)))
            self._stored_bytes += len(piece.content)

    def forgotten(self) -> Before | None:
        """The part that need not be kept in the database any more, if there is any."""
        has_any = False
        while self._stored and self._stored_bytes - self._stored[0][1] >= KEPT_BYTES:
            self._stored_bytes -= self._stored.popleft()[1]
            has_any = True
        return Before(*self.key, self.stream, self._stored[0][0]) if has_any else None


class LiveOutput(threading.Thread):
    """Takes the output of all that this worker runs."""

    def __init__(self, agent: Host) -> None:
        super().__init__(name="muster-live-output", daemon=True)
        self.agent = agent
        # before the pool forks: its children inherit the other end
        self._receiver = live.connect()
        self._tails: dict[AttemptKey, dict[str, Tail]] = {}
        self._lock = threading.Lock()
        """Held for moments only, so that the socket is emptied whatever the database does: its
        senders wait for a fifth of a second, and then drop what they have."""
        self._writing = threading.Lock()
        """Held while the database is written, so that an end is not recorded before its output."""
        self._has_more = threading.Event()
        self._writer = threading.Thread(
            target=self._write_for_ever, name="muster-live-output-writer", daemon=True
        )

    def start(self) -> None:
        self._writer.start()
        super().start()

    def run(self) -> None:
        while True:
            try:
                select.select([self._receiver], [], [])
                with self._lock:
                    self._receive()
            except Exception:  # of any kind: this thread must live
                log.exception("cannot take live output, trying again")
                time.sleep(WRITE_EVERY_SECONDS)
            self._has_more.set()

    def _write_for_ever(self) -> None:
        while True:
            self._has_more.wait()
            self._has_more.clear()
            begun_at = time.monotonic()
            try:
                self.write()
            except Exception:  # of any kind: this thread must live
                log.exception("cannot write live output, trying again")
                connections.close_all()
            time.sleep(max(0.0, begun_at + WRITE_EVERY_SECONDS - time.monotonic()))

    def write(self) -> None:
        """Write all that has come; what cannot be written now is written the next time."""
        with self._writing:
            with self._lock:
                tails = self._unwritten()
            if not self._write(tails):
                self._has_more.set()
            self._forget_ended()

    def conclude(self, keys: Collection[AttemptKey]) -> None:
        """Write the rest of the output of attempts whose end is about to be recorded. On the
        finisher's thread; raises nothing, as that would keep an end from being recorded."""
        try:
            with self._writing:
                with self._lock:
                    self._receive()
                    ended = self._tails.keys() & set(keys)
                    tails = [tail for tail in self._unwritten() if tail.key in ended]
                self._write(tails)
        except Exception:
            log.exception("cannot write the rest of live output", n=len(keys))
            connections.close_all()

    def _unwritten(self) -> list[Tail]:
        tails = (tail for streams in self._tails.values() for tail in streams.values())
        return [tail for tail in tails if tail.unwritten]

    def _receive(self) -> None:
        """Take all that has come."""
        while True:
            try:
                datagram = os.read(self._receiver, DATAGRAM_BYTES)
            except BlockingIOError:
                return
            execution, attempt, stream, offset = live.HEADER.unpack_from(datagram)
            key = UUID(bytes=execution), attempt
            streams = self._tails.setdefault(key, {})
            name = STREAMS[stream]
            if name not in streams:
                streams[name] = Tail(key, name)
            streams[name].add(offset, datagram[live.HEADER.size :])

    def _write(self, tails: Collection[Tail]) -> bool:
        """Write what these have, in two statements; returns False if they have it still."""
        if not tails:
            return True
        with self._lock:
            by_tail = [(tail, tail.take()) for tail in tails]
        try:
            live_output.write([piece for _, each in by_tail for piece in each], now=clock.now())
        except DatabaseError as error:
            log.warning("cannot write live output", error=str(error), n=len(tails))
            connections.close_all()
            with self._lock:
                for tail, pieces in by_tail:
                    tail.put_back(pieces)
            return False
        for tail, pieces in by_tail:
            tail.note_written(pieces)
        self._forget_old(tails)
        return True

    def _forget_old(self, tails: Collection[Tail]) -> None:
        try:
            live_output.forget([old for tail in tails if (old := tail.forgotten())])
        except DatabaseError as error:  # it goes with its execution
            log.warning("cannot remove old live output", error=str(error), n=len(tails))
            connections.close_all()

    def _forget_ended(self) -> None:
        """Forget streams whose end is recorded."""
        with self._lock:
            for key in [key for key in self._tails if key not in self.agent.desk.in_hand]:
                del self._tails[key]
