"""Queues with gates in installations, and their foreign clients."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
import time
from collections.abc import Iterator, Sequence
from typing import Any

from tests.scenarios import foreign
from tests.scenarios.foreign import Client, task_message
from tests.scenarios.installation import Backend, Installation

BROKERS = ["embedded", "classic", "quorum"]
NAMES = [f"orders{number}" for number in range(40)]
"""The queues that workers serve; each test has one of its own."""

CLASSIFIERS = {
    "Echo": {"action": "core.echo"},
    "Note": {"action": "scenario.note"},
    "Again": {"action": "scenario.note_again"},
}


class Door:
    """A queue with a gate of an installation, and a client of it."""

    def __init__(
        self, installation: Installation, url: str, kind: str, alias: str, name: str
    ) -> None:
        self.installation, self.url = installation, url
        self.kind, self.alias = kind, alias
        self.name = name
        self.client: Client = self.connect()

    def connect(self) -> Client:
        if self.url.startswith("sqlitemq"):
            return foreign.KombuClient(self.url)
        return foreign.PikaClient(self.url)

    @property
    def input(self) -> str:
        return f"{self.name}.in"

    @property
    def output(self) -> str:
        return f"{self.name}.out"

    @property
    def rejected(self) -> str:
        return f"{self.name}.rejected"

    @property
    def retry(self) -> str:
        return f"{self.name}.retry"

    def make(self, *, queue: dict[str, Any] | None = None, **gate: Any) -> None:
        """Make it, or change it; wait until its queues are there."""
        values = {
            "broker": self.alias,
            "input_queue": self.input,
            "output_queue": self.output,
            "rejected_queue": self.rejected,
            "queue_type": "quorum" if self.kind == "quorum" else "classic",
            "classifiers": CLASSIFIERS,
            **gate,
        }
        self.installation.client.call("make_gate", name=self.name, values=queue or {}, gate=values)
        queues = [self.input, self.rejected, self.output, *filter(None, [gate.get("paused_queue")])]
        foreign.wait_until(lambda: self._are_there(queues), f"{queues} are not all there")

    def _are_there(self, queues: Sequence[str]) -> bool:
        try:
            for queue in queues:
                self.client.depth(queue)
        except Exception:  # noqa: BLE001 - the channel is closed by a queue that is not there
            self.client.close()
            self.client = self.connect()
            return False
        return True

    def send(self, task_id: str, data: Any, classifier: str = "Echo", **more: Any) -> None:
        self.client.publish(self.input, task_message(task_id, data, classifier, **more))

    def note(self, label: str, **more: Any) -> dict[str, Any]:
        return {"journal": str(self.installation.journal.path), "label": label, **more}

    @property
    def id(self) -> int:
        id: int = self.installation.client.call("queue_id", name=self.name)
        return id

    def unacknowledged(self) -> int:
        """Deliveries of the input queue that the broker waits for."""
        if self.kind == "embedded":
            return self._counted("message", "AND message.owner IS NOT NULL", self.input)
        return self._listed("messages_unacknowledged", self.input)

    def consumers(self, queue: str) -> int:
        if self.kind == "embedded":
            return self._counted("consumer", "", queue)
        return self._listed("consumers", queue)

    def _counted(self, table: str, condition: str, queue: str) -> int:
        """Rows of the embedded broker that belong to this queue."""
        path = self.url.removeprefix("sqlitemq://")
        rows = f"FROM {table} JOIN queue ON queue.id = queue_id"
        statement = f"SELECT count(*) {rows} WHERE queue.name = ? {condition}"
        with contextlib.closing(sqlite3.connect(path)) as file:
            (number,) = file.execute(statement, (queue,)).fetchone()
        return int(number)

    def _listed(self, column: str, queue: str) -> int:
        rabbit = self.installation.backend.rabbit
        assert rabbit is not None
        host = self.url.rpartition("/")[2]
        lines = rabbit.control("list_queues", "-p", host, "--silent", "name", column)
        rows = dict(line.split("\t") for line in lines.splitlines())
        return int(rows[queue])

    def prefetched(self) -> list[int]:
        """The prefetch of each consumer of the input queue; not on the embedded broker."""
        rabbit = self.installation.backend.rabbit
        assert rabbit is not None
        host = self.url.rpartition("/")[2]
        columns = ("queue_name", "prefetch_count")
        lines = rabbit.control("list_consumers", "-p", host, "--silent", *columns).splitlines()
        rows = [line.split("\t") for line in lines]
        return sorted(int(row[1]) for row in rows if row[0] == self.input)

    def close_queue(self) -> None:
        """Let it accept nothing, and wait until nobody consumes it."""
        self.installation.client.call("close_queue", name=self.name)
        foreign.wait_until(lambda: self.consumers(self.input) == 0, "still consumed")

    def apply_policy(self, definition: dict[str, Any], *, queue: str = "") -> None:
        """Set a policy for its input queue, or for this one; not on the embedded broker."""
        rabbit = self.installation.backend.rabbit
        assert rabbit is not None
        host, pattern = self.url.rpartition("/")[2], f"^{re.escape(queue or self.input)}$"
        arguments = [self.name, pattern, json.dumps(definition), "--apply-to", "queues"]
        rabbit.control("set_policy", "-p", host, *arguments)
        time.sleep(2)  # nothing tells when the process of a queue has heard of it

    def take_and_die(self, queue: str) -> None:
        """Take a message, and lose the connection."""
        other = self.connect()
        foreign.wait_until(lambda: other.take(queue), f"{queue} is empty")
        other.close()

    def wait_for_limit(self, limit: int) -> None:
        """Wait until the executor has read the queue again: it looks each second."""
        self.send(f"probe {limit}", {"text": "x"})
        self.client.wait(self.output)
        time.sleep(1.5)

    def tickets(self) -> list[Any]:
        tickets: list[Any] = self.installation.client.call("tickets")
        return tickets

    def close(self) -> None:
        self.client.close()


@contextlib.contextmanager
def installed(backend: Backend, kind: str, **environment: str) -> Iterator[Doors]:
    """An installation with an executor and a worker that serves every queue of `NAMES`. On servers,
    gates have a virtual host of their own."""
    settings: dict[str, Any] = {}
    url, alias = "", "default"
    if kind != "embedded":
        url, alias = backend.new_virtual_host(), "gates"
        settings["gate_brokers"] = f"gates={url}"
    installation = Installation(backend, **settings)
    try:
        installation.client.call("make_queues", names=NAMES)
        installation.start_executor(**environment)
        installation.start_worker("w1", queues=",".join(NAMES))
        installation.ready()
        yield Doors(installation, url or installation.broker_url, alias, kind)
    finally:
        installation.close()


class Doors:
    """Makes a door for each test, with a queue of its own."""

    def __init__(self, installation: Installation, url: str, alias: str, kind: str) -> None:
        self.installation, self.url, self.alias, self.kind = installation, url, alias, kind
        self.free = list(NAMES)

    def make(self) -> Door:
        return Door(self.installation, self.url, self.kind, self.alias, self.free.pop())
