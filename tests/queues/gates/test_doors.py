"""The queues of a gate on real brokers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from kombu import Connection
from kombu.transport import TRANSPORT_ALIASES

from orchestrator.queues.gates import doors
from orchestrator.queues.gates.doors import GateQueueDiffers
from orchestrator.queues.models import Gate, WorkQueue

TRANSPORT_ALIASES["sqlitemq"] = "orchestrator.sqlitemq:Transport"
NUMBERS = itertools.count()


@pytest.fixture(params=["embedded", "classic", "quorum"])
def kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture
def link(kind: str, request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[Connection]:
    url = f"sqlitemq:///{tmp_path / 'broker.db'}"
    if kind != "embedded":
        url = request.getfixturevalue("rabbitmq_url")
    with Connection(url) as link:
        link.connect()
        yield link


@pytest.fixture
def gate(kind: str) -> Gate:
    name = f"doors{next(NUMBERS)}"
    return Gate(
        queue=WorkQueue(name=name, retry_limit=3),
        input_queue=f"{name}.in",
        output_queue=f"{name}.out",
        retry_queue=f"{name}.retry",
        queue_type="quorum" if kind == "quorum" else "classic",
    )


def declare(link: Connection, queue: str, **arguments: Any) -> None:
    channel: Any = link.channel()
    named = {name.replace("_", "-"): value for name, value in arguments.items()}
    channel.queue_declare(queue, durable=True, auto_delete=False, arguments=named)
    channel.close()


def test_queues_are_declared_with_the_arguments_of_caf_and_no_others(
    link: Connection, gate: Gate
) -> None:
    doors.declare(link, gate)
    doors.declare(link, gate)
    for queue in (gate.input_queue, gate.retry_queue, gate.output_queue):
        declare(link, queue, x_queue_type=gate.queue_type)


def test_other_input_queue_is_named_with_argument_wanted_and_found(
    link: Connection, gate: Gate
) -> None:
    declare(link, gate.input_queue, x_queue_type=gate.queue_type, x_max_length=7)
    with pytest.raises(GateQueueDiffers) as differs:
        doors.declare(link, gate)
    text = f"queue {gate.input_queue}: x-max-length: wanted none, found 7"
    assert text in str(differs.value)


def test_output_queue_is_left_as_its_consumer_declared_it(link: Connection, gate: Gate) -> None:
    declare(link, gate.output_queue, x_queue_type=gate.queue_type, x_max_length=7)
    doors.declare(link, gate)
    declare(link, gate.output_queue, x_queue_type=gate.queue_type, x_max_length=7)


def test_priorities_are_an_argument_of_classic_queues(link: Connection, gate: Gate) -> None:
    if gate.queue_type == "quorum":
        assert doors.arguments(gate) == {"x-queue-type": "quorum"}
        return
    gate.max_priority = 5
    doors.declare(link, gate)
    declare(link, gate.input_queue, x_queue_type="classic", x_max_priority=5)


def test_gate_whose_retries_go_to_its_input_queue_consumes_it_once(gate: Gate) -> None:
    gate.retry_queue = ""
    assert doors.consumed(gate) == [gate.input_queue]
    gate.retry_queue = "elsewhere"
    assert doors.consumed(gate) == [gate.input_queue, "elsewhere"]
    gate.consumes_retry = False
    assert doors.consumed(gate) == [gate.input_queue]


def test_policy_of_quorum_queues_leaves_room_for_lost_starts(gate: Gate) -> None:
    policy = doors.policy(gate, dead_letter_exchange="muster.dlx")
    assert policy["dead-letter-exchange"] == "muster.dlx"
    limit = 13 if gate.queue_type == "quorum" else None
    assert policy.get("delivery-limit") == limit
