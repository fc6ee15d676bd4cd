"""A wire between a client and a server that can be cut, or go silent, as networks do."""

from __future__ import annotations

import contextlib
import socket
import threading
from urllib.parse import urlsplit

from orchestrator.drills.drill.relay import CHUNK_BYTES, Relay


class Wire(Relay):
    """A relay that can also fall silent: connections stay, new ones are taken, nothing arrives.

    What was sent meanwhile arrives when it speaks again, as after a network that was away.
    """

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self._speaks = threading.Event()
        self._speaks.set()
        self._last_words = b""
        self._said = threading.Event()

    def __enter__(self) -> Wire:
        super().__enter__()
        return self

    @classmethod
    def to(cls, url: str) -> Wire:
        """A wire to the server that this URL names."""
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        return cls(parts.hostname, parts.port)

    def carrying(self, url: str) -> str:
        """The URL of that server, by this wire."""
        parts = urlsplit(url)
        who = parts.netloc.rpartition("@")[0]
        return parts._replace(netloc=f"{who}@127.0.0.1:{self.port}").geturl()

    def hush(self) -> None:
        self._speaks.clear()

    @property
    def is_listening(self) -> bool:
        """Whether it waits for last words."""
        return bool(self._last_words)

    def hush_after(self, words: bytes, *, within_seconds: float) -> bool:
        """Fall silent as soon as these have been passed on: nobody hears the answer. Returns False
        if they do not come in time, and it speaks on."""
        self._said.clear()
        self._last_words = words
        was_said = self._said.wait(within_seconds)
        self._last_words = b""
        return was_said or self._said.is_set()

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
                self._listen_for_last_words(chunk)
                sink.sendall(chunk)
        self._speaks.wait()  # nor is an end heard of
        for each in (source, sink):
            with self._lock:
                self._sockets.discard(each)
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _listen_for_last_words(self, chunk: bytes) -> None:
        if self._last_words and self._last_words in chunk:
            self.hush()
            self._said.set()
