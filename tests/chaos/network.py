"""The wires between services and servers, each of which can be cut, or fall silent."""

from __future__ import annotations

import contextlib
import socket
import threading
from urllib.parse import urlsplit, urlunsplit

from orchestrator.management.drill.relay import CHUNK_BYTES, Relay

VARIABLES = {"database": "DATABASE_URL", "broker": "BROKER_URL"}


class Wire(Relay):
    """A relay that can also fall silent: connections stay, new ones are taken, nothing arrives.

    What was sent meanwhile arrives when it speaks again, as after a network that was away.
    """

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self._speaks = threading.Event()
        self._speaks.set()

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


class Network:
    """A wire of its own from each service to the database and to the broker."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._urls = {name: environment.get(variable) for name, variable in VARIABLES.items()}
        self._wires: dict[tuple[str, str], Wire] = {}

    def environment(self, service: str) -> dict[str, str]:
        """Variables with which a service goes through its own wires."""
        return {
            VARIABLES[server]: self._through(self.wire(service, server), url)
            for server, url in self._urls.items()
            if url is not None
        }

    def wire(self, service: str, server: str) -> Wire:
        """The wire from a service to the `database` or to the `broker`."""
        key = service, server
        if key not in self._wires:
            url = urlsplit(self._urls[server] or "")
            assert url.hostname is not None
            assert url.port is not None
            self._wires[key] = Wire(url.hostname, url.port)
            self._wires[key].__enter__()
        return self._wires[key]

    def mend(self) -> None:
        for wire in self._wires.values():
            wire.mend()

    def close(self) -> None:
        for wire in self._wires.values():
            wire.__exit__(None, None, None)

    @staticmethod
    def _through(wire: Wire, url: str) -> str:
        parts = urlsplit(url)
        who = parts.netloc.rpartition("@")[0]
        return urlunsplit(parts._replace(netloc=f"{who}@127.0.0.1:{wire.port}"))
