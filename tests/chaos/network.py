"""The wires between services and servers, each of which can be cut, or fall silent."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from tests.relays import Wire

VARIABLES = {"database": "DATABASE_URL", "broker": "BROKER_URL"}


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
