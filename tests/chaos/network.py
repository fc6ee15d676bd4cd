"""The wires between services and servers, each of which can be cut, or fall silent."""

from __future__ import annotations

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
            VARIABLES[server]: self.wire(service, server).carrying(url)
            for server, url in self._urls.items()
            if url is not None
        }

    def wire(self, service: str, server: str) -> Wire:
        """The wire from a service to the `database` or to the `broker`."""
        key = service, server
        if key not in self._wires:
            self._wires[key] = Wire.to(self._urls[server] or "")
            self._wires[key].__enter__()
        return self._wires[key]

    def mend(self) -> None:
        for wire in self._wires.values():
            wire.mend()

    def close(self) -> None:
        for wire in self._wires.values():
            wire.__exit__(None, None, None)
