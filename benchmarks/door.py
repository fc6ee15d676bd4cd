"""An HTTP endpoint of a party, and requests to it."""

from __future__ import annotations

from benchmarks.remote import BenchmarkError, Remote
from benchmarks.stage import Party
from tests.servers import free_port

EXECUTIONS = "/api/v1/executions"
NOOP = '{"action_ref":"core.noop"}'


class Door:
    """A party's endpoint, in a process of its own."""

    def __init__(self, party: Party, *command: str) -> None:
        self.party = party
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.headers = {"Content-Type": "application/json"}
        party.start("api", *command, str(port))
        party.listening("api", port)

    def ask(
        self,
        load: Remote,
        method: str,
        status: int,
        *,
        clients: int,
        count: int,
        path: str = EXECUTIONS,
        token: str = "",
    ) -> tuple[float, list[float]]:
        """Returns the seconds that it took, and the milliseconds of each. Raises BenchmarkError if
        an answer had another status."""
        seconds, times_ms, statuses = load.call(
            "ask",
            url=self.url + path,
            method=method,
            headers=self.headers | ({"Authorization": f"Bearer {token}"} if token else {}),
            body=NOOP if method == "POST" else "",
            clients=clients,
            count=count,
        )
        if statuses != [status]:
            raise BenchmarkError(f"{method} {path}: expected {status}, found {statuses}")
        return seconds, times_ms
