"""Queues as operators see them through RabbitMQ's management plugin, on a default installation."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import servers
from tests.scenarios.installation import Backend, Installation

FIVE_MINUTES_MS, ONE_DAY_MS = 300_000, 86_400_000
QUEUE = "worker.1.executions"


class Managed(Backend):
    """The embedded database, and the default virtual host of a RabbitMQ of its own."""

    def __init__(self, rabbit: servers.RabbitServer) -> None:
        super().__init__()
        self.broker_url = rabbit.url

    def environment(self, directory: Path) -> dict[str, str]:
        return super().environment(directory) | {"BROKER_URL": self.broker_url}


@pytest.fixture(scope="module")
def port() -> int:
    return servers.free_port()


@pytest.fixture(scope="module")
def muster(start_shared_server: Callable[..., Any], port: int) -> Iterator[Installation]:
    """With the settings that Muster has by itself, an executor and the first worker."""
    where = f"management.tcp.port = {port}\nmanagement.tcp.ip = 127.0.0.1\n"
    # queues are listed with the numbers of the last half second
    where += "collect_statistics_interval = 500\n"
    rabbit: servers.RabbitServer = start_shared_server(
        servers.RabbitServer, plugins=("rabbitmq_management",), configuration=where
    )
    backend = Managed(rabbit)
    installation = Installation(backend, quick=False)
    try:
        installation.start_executor()
        installation.start_worker("w1")
        installation.ready()
        yield installation
    finally:
        installation.close()
        backend.close()


@pytest.fixture
def api(muster: Installation, port: int) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}/api", auth=("guest", "guest")) as client:
        yield client


def test_page_of_a_workers_queue_has_its_ttl_and_its_dead_letter_exchange(
    api: httpx.Client,
) -> None:
    queue = api.get(f"/queues/%2F/{QUEUE}").raise_for_status().json()
    # RabbitMQ 4 shows the type that a queue has without an argument, too
    assert {"x-queue-type": "classic"} | queue["arguments"] == {
        "x-message-ttl": FIVE_MINUTES_MS,
        "x-dead-letter-exchange": "muster.dlx",
        "x-queue-type": "classic",
    }
    assert (queue["durable"], queue["auto_delete"], queue["exclusive"]) == (True, False, False)
    bindings = api.get(f"/queues/%2F/{QUEUE}/bindings").raise_for_status().json()
    assert ("muster.executions", "execution.dispatch.worker.1") in {
        (each["source"], each["routing_key"]) for each in bindings
    }


def test_page_of_the_dead_letter_queue_shows_that_it_keeps_them_for_a_day(
    api: httpx.Client,
) -> None:
    queue = api.get("/queues/%2F/muster.dlx.queue").raise_for_status().json()
    assert queue["durable"]
    assert queue["arguments"]["x-message-ttl"] == ONE_DAY_MS
    assert "x-dead-letter-exchange" not in queue["arguments"]
    bindings = api.get("/queues/%2F/muster.dlx.queue/bindings").raise_for_status().json()
    assert ("muster.dlx", "#") in {(each["source"], each["routing_key"]) for each in bindings}


def test_consumer_of_a_workers_queue_is_seen_while_the_worker_runs(
    muster: Installation, api: httpx.Client
) -> None:
    def consumers() -> int:
        return int(api.get(f"/queues/%2F/{QUEUE}").raise_for_status().json().get("consumers", 0))

    muster.wait_for(lambda: consumers() == 1, "the worker is not seen")


@pytest.mark.slow
def test_rabbitmqadmin_lists_the_queues_reads_letters_and_purges(
    muster: Installation, api: httpx.Client, port: int, tmp_path: Path
) -> None:
    program = tmp_path / "rabbitmqadmin"
    # the plugin brings it: operators fetch it from there, too
    address = f"http://127.0.0.1:{port}/cli/rabbitmqadmin"
    program.write_text(httpx.get(address).raise_for_status().text)

    def admin(*arguments: str) -> str:
        options = ("--port", str(port), "--format", "raw_json", *arguments)
        command = [sys.executable, str(program), *options]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def listed() -> dict[str, Any]:
        rows = json.loads(admin("list", "queues", "name", "messages", "arguments"))
        return {row["name"]: row for row in rows}

    muster.wait_for(lambda: "messages" in listed()[QUEUE], "nothing is counted yet")
    queues = listed()
    assert queues[QUEUE]["messages"] == 0
    assert queues[QUEUE]["arguments"]["x-message-ttl"] == FIVE_MINUTES_MS
    assert queues["muster.dlx.queue"]["arguments"]["x-message-ttl"] == ONE_DAY_MS
    # nobody takes from this queue: the executors do not drain it
    api.put("/queues/%2F/aside", json={"durable": True}).raise_for_status()
    admin("publish", "exchange=amq.default", "routing_key=aside", "payload=a letter")
    muster.wait_for(lambda: listed()["aside"].get("messages") == 1, "it is not counted")
    [letter] = json.loads(admin("get", "queue=aside", "count=1"))
    assert letter["payload"] == "a letter"
    admin("purge", "queue", "name=aside")
    muster.wait_for(lambda: listed()["aside"]["messages"] == 0, "it is not purged")
    admin("purge", "queue", "name=muster.dlx.queue")
