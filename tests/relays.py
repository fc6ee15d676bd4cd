"""A wire between a client and a server that can be cut, or go silent, as networks do."""

from __future__ import annotations

import contextlib
import socket
import threading

from orchestrator.drills.drill.relay import CHUNK_BYTES, Relay


class Wire(Relay):
    """A relay that can also fall silent: connections stay, new ones are taken, nothing arrives.

    What was sent meanwhile arrives when it speaks again, as after a network that was away.
    """

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self._speaks = threading.Event()
        self._speaks.set()

    def __enter__(self) -> Wire:
        super().__enter__()
        return self

    def hush(self) -> None:
        self._speaks.clear()

    def mend(self) -> None:
        super().mend()
        self._speaks.set()

    def cut(self) -> None:
        self._speaks.set()
        super().cut()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(CHUNK_BYTES):
                self._speaks.wait()
                sink.sendall(chunk)
        self._speaks.wait()  # nor is an end heard of
        for each in (source, sink):
            with self._lock:
                self._sockets.discard(each)
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
