"""`manage.py topology check` sees bindings and policies, where the broker lists them.

RabbitMQ with its management plugin, one for the module; each test has a namespace of its own.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from orchestrator.core import brokers, topology
from orchestrator.core.management.broker_topology import ASIDE
from tests import commands, servers
from tests.factories import NOW, make_worker
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db

run = commands.of("topology").run
ELSEWHERE = "somebody.elses"


class Check:
    """What `topology check --json` finds, and its complaint."""

    def __init__(self, *options: str) -> None:
        stdout = io.StringIO()
        self.complaint = ""
        try:
            call_command("topology", "check", "--json", *options, stdout=stdout)
        except CommandError as error:
            self.complaint = str(error)
        document = json.loads(stdout.getvalue())
        self.not_checked: list[str] = document["not_checked"]
        self.of = {each["name"]: each for each in document["items"]}

    def problems(self, name: str) -> list[dict[str, str]]:
        """Of this queue or exchange, apart from the lack of a consumer."""
        return [each for each in self.of[name]["problems"] if each["state"] != "no consumer"]


@pytest.fixture(scope="module")
def managed_rabbit(start_shared_server: Callable[..., Any]) -> servers.RabbitServer:
    """It listens where the plugin listens by default, seen from the port of the broker's URL."""
    port = servers.free_port()
    where = f"management.tcp.port = {port}\nmanagement.tcp.ip = 127.0.0.1\n"
    server: servers.RabbitServer = start_shared_server(
        servers.RabbitServer, plugins=("rabbitmq_management",), configuration=where
    )
    server.management_url = f"http://127.0.0.1:{port}"  # type: ignore[attr-defined]
    return server


@pytest.fixture(params=["sqlitemq", "rabbitmq"])
def channel(request: pytest.FixtureRequest, settings: Any, tmp_path: Path) -> Iterator[Any]:
    """A channel of a broker that has everything that the topology wants, in a namespace of this
    test's."""
    if request.param == "rabbitmq":
        rabbit = request.getfixturevalue("managed_rabbit")
        settings.BROKER_URL = rabbit.url
        settings.BROKER_MANAGEMENT_URL = rabbit.management_url
    else:
        settings.BROKER_URL = f"sqlitemq:///{tmp_path / 'broker.db'}"
    settings.MUSTER = replace(settings.MUSTER, namespace=f"test-{time.monotonic_ns()}")
    brokers.errors.cache_clear()
    run("apply")
    with brokers.connection() as link:
        yield link.channel()
    brokers.errors.cache_clear()


def test_queue_that_is_bound_to_nothing_is_named_and_bound_again_by_apply(channel: Any) -> None:
    letters = topology.dead_letter_queue()
    channel.queue_unbind(letters.name, letters.exchange, letters.routing_key)
    found = Check()
    assert found.of[letters.name]["state"] == "unbound"
    (problem,) = found.problems(letters.name)
    assert problem["what"] == f"it is not bound to {letters.exchange} with the key #"
    assert f"queue {letters.name}: it is not bound" in found.complaint
    assert "manage.py topology apply" in found.complaint
    assert found.not_checked == []

    run("apply")
    assert (Check().complaint, Check().problems(letters.name)) == ("", [])


def test_deleted_exchange_is_named_and_comes_back_with_its_bindings(channel: Any) -> None:
    worker = topology.worker_queue(make_worker().pk)
    run("apply")
    exchange = topology.executions_exchange()
    channel.exchange_delete(exchange)
    found = Check()
    assert found.of[exchange]["state"] == "missing"
    assert {found.of[name]["state"] for name in (worker.name, topology.requests_queue().name)} == {
        "unbound"
    }
    assert f"1 of {len(found.of)} missing: {exchange}; declare them" in found.complaint

    run("apply")
    assert Check().complaint == ""


def test_bindings_that_are_not_ours_are_named_and_left_alone(channel: Any) -> None:
    requests, exchange = topology.requests_queue(), topology.executions_exchange()
    channel.queue_declare(ELSEWHERE, durable=True, auto_delete=False)
    channel.queue_bind(ELSEWHERE, exchange, "#")
    channel.queue_bind(requests.name, exchange, "execution.dispatch.#")
    for _ in range(2):
        found = Check()
        (leak,) = found.problems(exchange)
        assert leak["state"] == "foreign binding"
        assert f"bound to the queue {ELSEWHERE} with the key '#'" in leak["what"]
        (extra,) = found.problems(requests.name)
        assert "with the key 'execution.dispatch.#'" in extra["what"]
        assert "unbind it" in found.complaint
        run("apply")  # it repairs what is missing, and removes nothing of others
    channel.queue_unbind(ELSEWHERE, exchange, "#")
    channel.queue_unbind(requests.name, exchange, "execution.dispatch.#")
    assert Check().complaint == ""


def test_queue_in_which_an_executor_with_gates_hears_of_ends_is_not_foreign(channel: Any) -> None:
    exchange, heard = topology.executions_exchange(), topology.told_queue("executor@host.1")
    channel.queue_declare(heard, exclusive=True, auto_delete=True)
    channel.queue_bind(heard, exchange, topology.COMPLETED)
    assert Check().problems(exchange) == []
    channel.queue_bind(heard, exchange, "#")
    (leak,) = Check().problems(exchange)
    assert leak["state"] == "foreign binding"


def test_queue_in_which_a_notifier_hears_of_changes_is_not_foreign(channel: Any) -> None:
    exchange, heard = topology.notifications_exchange(), topology.notifications_queue("host:7.ab12")
    channel.queue_declare(heard, exclusive=True, auto_delete=True)
    channel.queue_bind(heard, exchange, "")
    assert Check().problems(exchange) == []
    channel.queue_declare(ELSEWHERE, durable=True, auto_delete=False)
    channel.queue_bind(ELSEWHERE, exchange, "")
    (leak,) = Check().problems(exchange)
    assert (leak["state"], ELSEWHERE in leak["what"]) == ("foreign binding", True)
    channel.queue_delete(ELSEWHERE)


def test_queue_of_an_interrupted_migration_is_sent_to_migrate(channel: Any) -> None:
    requests = topology.requests_queue()
    channel.queue_declare(requests.name + ASIDE, durable=True, auto_delete=False)
    channel.queue_bind(requests.name + ASIDE, requests.exchange, requests.routing_key)
    (problem,) = Check().problems(requests.exchange)
    assert problem["remedy"].startswith("manage.py topology migrate")
    run("migrate")
    assert Check().complaint == ""


def test_queue_without_a_consumer_is_a_fault_only_of_what_should_be_running(channel: Any) -> None:
    up, down = make_worker("up"), make_worker("down", status="inactive")
    run("apply")
    requests, letters = topology.requests_queue().name, topology.dead_letter_queue().name
    found = Check()
    assert found.complaint == ""
    silent = {name for name, each in found.of.items() if each["state"] == "no consumer"}
    assert {requests, topology.worker_queue(up.pk).name} < silent
    assert not silent & {letters, topology.worker_queue(down.pk).name}
    channel.basic_consume(requests, callback=print)
    complaint = Check("--running").complaint
    assert f"queue {topology.worker_queue(up.pk).name}: nobody consumes it" in complaint
    assert requests not in complaint


@pytest.mark.slow
@pytest.mark.parametrize("channel", ["rabbitmq"], indirect=True)
def test_policy_that_changes_what_a_queue_promises_is_named(
    channel: Any, managed_rabbit: servers.RabbitServer
) -> None:
    requests = topology.requests_queue().name
    managed_rabbit.control("set_policy", "short", f"^{requests}$", '{"message-ttl":1000}')
    try:
        # RabbitMQ's own list of what applies is up to five seconds old
        (problem,) = wait_until(lambda: Check().problems(requests), "the policy is not seen")
    finally:
        managed_rabbit.control("clear_policy", "short")
    assert problem["what"] == "the policy short sets message-ttl=1000"
    assert "clear_policy short" in problem["remedy"]


@pytest.mark.parametrize("channel", ["rabbitmq"], indirect=True)
@pytest.mark.parametrize(
    ("login", "host", "why"),
    [
        ("", "127.0.0.1:1", "does not answer at http://127.0.0.1:1 ("),
        ("guest:wrong@", "", "refuses the user guest (401)"),
    ],
)
def test_what_could_not_be_checked_is_said_with_the_reason(
    channel: Any, settings: Any, login: str, host: str, why: str
) -> None:
    host = host or settings.BROKER_MANAGEMENT_URL.partition("//")[2]
    settings.BROKER_MANAGEMENT_URL = f"http://{login}{host}"
    letters = topology.dead_letter_queue()
    channel.queue_unbind(letters.name, letters.exchange, letters.routing_key)
    found = Check()
    (said,) = found.not_checked
    assert said.startswith("bindings and policies: RabbitMQ's management API")
    assert why in said
    assert "BROKER_MANAGEMENT_URL" in said
    assert found.complaint == "", "nothing is known of it"
    assert f"Not checked: {said}" in run("check")


def test_queues_of_a_retired_worker_are_not_missed(channel: Any) -> None:
    make_worker("gone", status="inactive", retired_at=NOW)
    assert Check().complaint == ""
