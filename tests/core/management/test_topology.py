"""`manage.py topology` on both brokers: it looks without touching and moves without losing."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from amqp.exceptions import NotFound
from django.core.management import CommandError, call_command
from kombu import Connection

from orchestrator.core import brokers, topology
from orchestrator.core.management import broker_topology
from tests import commands
from tests.factories import make_worker

pytestmark = pytest.mark.django_db

OLD_TTL_MS = 200_000
FINE = {"as declared", "no consumer"}

run, document, refused = commands.of("topology")
items = partial(commands.items, "topology")


class Broker:
    """A broker of one test's own names, and what is in it."""

    def __init__(self, link: Connection, worker_id: int) -> None:
        self.link = link
        self.worker_id = worker_id
        self.spec = topology.worker_queue(worker_id)

    def channel(self) -> Any:
        return self.link.channel()

    def declare_old(self, **arguments: Any) -> None:
        """The worker's queue as an earlier configuration declared it."""
        channel = self.channel()
        topology.declare(channel, [topology.requests_queue()])
        old = replace(self.spec, arguments={"x-message-ttl": OLD_TTL_MS, **arguments})
        old.queue()(channel).declare()

    def put(self, *bodies: str, **properties: Any) -> None:
        with brokers.connection() as link:
            producer = link.Producer()
            for body in bodies:
                producer.publish(
                    body,
                    exchange=self.spec.exchange,
                    routing_key=self.spec.routing_key,
                    headers={"task": "muster.run", "n": body},
                    correlation_id=body,
                    **properties,
                )

    def messages(self, queue: str | None = None) -> list[Any]:
        """Takes what is in a queue."""
        found, channel = [], self.channel()
        while (raw := channel.basic_get(queue or self.spec.name, no_ack=True)) is not None:
            found.append(channel.message_to_python(raw))
        return found

    def count(self, queue: str | None = None) -> int | None:
        counted = broker_topology._counted(self.link, queue or self.spec.name)
        return None if counted is None else int(counted.message_count)

    def remove_all(self) -> None:
        channel = self.channel()
        for spec in broker_topology.every_queue():
            for name in (spec.name, spec.name + broker_topology.ASIDE):
                channel.queue_delete(name)
        for name in topology.exchange_purposes():
            channel.exchange_delete(name)


@pytest.fixture(params=["sqlitemq", "rabbitmq"])
def own_broker(request: pytest.FixtureRequest, settings: Any, tmp_path: Path) -> Iterator[Broker]:
    if request.param == "rabbitmq":
        settings.BROKER_URL = request.getfixturevalue("rabbitmq_url")
        brokers.errors.cache_clear()
    else:
        settings.BROKER_URL = f"sqlitemq:///{tmp_path / 'broker.db'}"
    settings.MUSTER = replace(settings.MUSTER, namespace=f"test-{time.monotonic_ns()}")
    with brokers.connection() as link:
        found = Broker(link, make_worker().pk)
        yield found
        found.remove_all()
    brokers.errors.cache_clear()


def check() -> tuple[list[dict[str, Any]], str]:
    """The findings, and the complaint."""
    out = io.StringIO()
    complaint = ""
    try:
        call_command("topology", "check", "--json", stdout=out)
    except CommandError as error:
        complaint = str(error)
    return json.loads(out.getvalue() or f"no findings: {complaint}")["items"], complaint


def test_check_of_an_empty_broker_tells_what_is_missing_and_makes_nothing(
    own_broker: Broker,
) -> None:
    findings, complaint = check()
    assert {finding["state"] for finding in findings} == {"missing"}
    assert len(findings) == 4 + 10 + 2, "exchanges, shared queues, queues of the worker"
    assert "manage.py topology apply" in complaint
    assert own_broker.count() is None
    with pytest.raises(NotFound):
        own_broker.channel().exchange_declare(topology.executions_exchange(), "topic", passive=True)


def test_apply_declares_everything_and_check_agrees(own_broker: Broker) -> None:
    for _ in range(2):
        assert run("apply") == "12 queues are declared and bound.\n"
    findings, complaint = check()
    assert {finding["state"] for finding in findings} <= FINE
    assert complaint == ""
    own_broker.put("hello")
    assert own_broker.count() == 1, "it is bound"


def test_check_names_every_argument_that_differs_with_wanted_and_found(own_broker: Broker) -> None:
    run("apply")
    own_broker.channel().queue_delete(own_broker.spec.name)
    own_broker.declare_old(
        **{
            "x-max-length": 7,
            "x-dead-letter-exchange": "elsewhere",
            "x-dead-letter-routing-key": "a 'b'",
        }
    )
    findings, complaint = check()
    (finding,) = [each for each in findings if each["state"] not in FINE]
    assert finding["name"] == own_broker.spec.name
    differences = {each.pop("argument"): each for each in finding["differences"]}
    assert differences == {
        "x-message-ttl": {"wanted": 300_000, "found": OLD_TTL_MS},
        "x-dead-letter-exchange": {"wanted": topology.dead_letter_exchange(), "found": "elsewhere"},
        "x-dead-letter-routing-key": {"wanted": None, "found": "a 'b'"},
        "x-max-length": {"wanted": None, "found": 7},
    }
    assert "1 of 16 differ" in complaint
    assert check()[1] == complaint, "looking has changed nothing"
    with pytest.raises(CommandError, match="x-"):
        run("apply")


def test_check_tells_of_a_queue_that_is_not_durable_and_an_exchange_of_another_type(
    own_broker: Broker,
) -> None:
    channel = own_broker.channel()
    channel.exchange_declare(
        topology.dead_letter_exchange(), "direct", durable=True, auto_delete=False
    )
    name = topology.maintenance_queue().name
    channel.queue_declare(name, durable=True, auto_delete=True, arguments={"x-max-length": 1_000})
    findings = {finding["name"]: finding for finding in check()[0]}
    assert findings[name]["differences"] == [
        {"argument": "auto_delete", "wanted": False, "found": True}
    ]
    assert findings[topology.dead_letter_exchange()]["differences"] == [
        {"argument": "type", "wanted": "topic", "found": "direct"}
    ]
    channel.queue_delete(name)


def test_migrate_moves_every_message_in_order_and_redeclares(own_broker: Broker) -> None:
    own_broker.declare_old()
    bodies = [str(n) for n in range(50)]
    own_broker.put(*bodies[:40])
    own_broker.put(*bodies[40:], expiration=60)
    assert f"{own_broker.spec.name}" in run("migrate")
    assert check()[0][-2]["state"] in FINE
    found = own_broker.messages()
    assert [message.body for message in found] in (bodies, [body.encode() for body in bodies])
    for message, body in zip(found, bodies, strict=True):
        assert {key: message.headers[key] for key in message.headers} == {
            "task": "muster.run",
            "n": body,
        }
        assert message.properties["correlation_id"] == body
        assert message.properties["delivery_mode"] == 2
    assert [message.properties.get("expiration") for message in found] == [None] * 40 + [
        "60000"
    ] * 10
    assert own_broker.count(own_broker.spec.name + broker_topology.ASIDE) is None
    own_broker.put("after")
    assert own_broker.count() == 1, "the new queue is bound"


def test_migrate_redeclares_the_dead_letter_queue_and_others_with_it(
    own_broker: Broker, settings: Any
) -> None:
    run("apply")
    own_broker.channel().queue_delete(own_broker.spec.name)
    own_broker.declare_old()
    own_broker.put("one")
    letters = topology.dead_letter_queue().name
    with brokers.connection() as link:
        link.Producer().publish("letter", exchange="", routing_key=letters)
    settings.MUSTER = replace(settings.MUSTER, dlx_queue_ttl_ms=60_000)
    assert f"queue {letters}: x-message-ttl: wanted 60000, found 86400000" in check()[1]
    told = items("migrate")
    assert [each["queue"] for each in told] == [letters, own_broker.spec.name]
    assert check()[1] == ""
    assert [own_broker.count(letters), own_broker.count()] == [1, 1]


def test_migrate_changes_the_type_of_every_queue(own_broker: Broker, settings: Any) -> None:
    run("apply")
    own_broker.put("one", "two")
    settings.MUSTER = replace(settings.MUSTER, queue_type="quorum")
    wanted = f"queue {own_broker.spec.name}: x-queue-type: wanted quorum, found "
    assert wanted in check()[1]
    assert len(items("migrate")) == len(broker_topology.every_queue())
    assert check()[1] == ""
    assert [message.body for message in own_broker.messages()] in (
        ["one", "two"],
        [b"one", b"two"],
    )


def test_migrate_of_what_does_not_differ_moves_nothing(own_broker: Broker) -> None:
    run("apply")
    own_broker.put("one")
    assert run("migrate") == "No queue differs; nothing was moved.\n"
    assert own_broker.count() == 1


def test_migrate_that_was_killed_is_ended_by_the_next_one(own_broker: Broker) -> None:
    own_broker.declare_old()
    channel = own_broker.channel()
    aside = own_broker.spec.name + broker_topology.ASIDE
    channel.queue_declare(aside, durable=True, auto_delete=False)
    channel.queue_bind(aside, own_broker.spec.exchange, own_broker.spec.routing_key)
    channel.queue_unbind(
        own_broker.spec.name, own_broker.spec.exchange, own_broker.spec.routing_key
    )
    own_broker.put("arrived meanwhile")
    assert own_broker.count(aside) == 1
    run("migrate")
    assert len(own_broker.messages()) == 1
    assert own_broker.count(aside) is None


def test_migrate_refuses_a_queue_with_consumers_unless_forced(own_broker: Broker) -> None:
    own_broker.declare_old()
    own_broker.put("one", "two")
    with brokers.connection() as link:
        channel: Any = link.channel()
        channel.basic_qos(0, 1, False)
        cancelled: list[str] = []
        channel.basic_consume(
            own_broker.spec.name, callback=lambda message: None, on_cancel=cancelled.append
        )
        with pytest.raises(CommandError, match=rf"{own_broker.spec.name} \(1\).*--force"):
            run("migrate")
        assert check()[0][-2]["state"] == "differs"
        told = items("migrate", "--force")
    assert [each["queue"] for each in told] == [own_broker.spec.name]
    assert check()[0][-2]["state"] in FINE


def test_unreachable_broker_is_one_line(settings: Any) -> None:
    brokers.errors.cache_clear()
    settings.BROKER_URL = "amqp://guest:secret@127.0.0.1:1//"
    assert refused("check").startswith("Broker amqp://127.0.0.1:1//: ")
    brokers.errors.cache_clear()


def test_show_asks_no_broker(settings: Any) -> None:
    settings.BROKER_URL = "amqp://127.0.0.1:1//"
    text = run("show")
    assert all(spec.name in text for spec in topology.shared_queues())
    described = json.loads(run("show", "--format", "json"))
    assert [queue["name"] for queue in described["queues"]][-1] == "worker.<id>.cancel"
    assert run("show", "--format", "markdown").startswith("# Exchanges and queues\n")
