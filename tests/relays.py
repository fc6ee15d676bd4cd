"""A relay between a client and a server that can go silent, as a network does."""

from __future__ import annotations

import contextlib
import socket

from orchestrator.management.drill.relay import CHUNK_BYTES, Relay


class SilentRelay(Relay):
    """Passes on what comes until it is silenced: then everything that is open stays open, and
    nothing arrives any more. Neither end hears that the other has gone."""

    is_silent = False

    def __enter__(self) -> SilentRelay:
        super().__enter__()
        return self

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(CHUNK_BYTES):
                if not self.is_silent:
                    sink.sendall(chunk)
        if not self.is_silent:
            for each in (source, sink):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()
