"""Limits around gates: of their queues, of what is taken ahead, of the broker, of their clients."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from signal import SIGTERM
from urllib.parse import urlsplit

import pika
import pytest

from tests.scenarios import doors, foreign
from tests.scenarios.doors import Door, Doors
from tests.scenarios.installation import Backend

KINDS = ["classic", "quorum"]
SLOTS = 2
HELD_SECONDS = 25


@pytest.fixture(scope="module", params=KINDS)
def opened(request: pytest.FixtureRequest, servers_backend: Backend) -> Iterator[Doors]:
    with doors.installed(servers_backend, request.param) as opened:
        yield opened


@pytest.fixture
def door(opened: Doors) -> Iterator[Door]:
    door = opened.make()
    yield door
    door.close()


def prefetches(door: Door, *expected: int) -> None:
    foreign.wait_until(
        lambda: door.prefetched() == sorted(expected), f"{door.prefetched()} is not {expected}"
    )


@pytest.mark.slow
def test_full_output_queue_keeps_answers_and_holds_the_input_back(door: Door) -> None:
    buffer, number = 5, 60
    door.make(queue={"prefetch_buffer": buffer})
    full = {"max-length": 3, "overflow": "reject-publish"}
    door.apply_policy(full, queue=door.output)
    for n in range(number):
        door.send(f"t{n}", {"text": str(n)})

    def untold() -> int:
        tickets = [row for row in door.tickets() if row.gate_id == door.id]
        return sum(row.told_at is None and bool(row.last_error) for row in tickets)

    foreign.wait_until(lambda: untold() >= buffer, "nothing is refused")
    time.sleep(2)
    assert door.unacknowledged() <= SLOTS + buffer
    assert door.client.depth(door.input) > number / 2, "the broker keeps what nobody may answer"

    answers = door.client.collect(door.output, number)

    assert {answer.told for answer in answers} == {
        (f"t{n}", "RESULT_SUCCESS") for n in range(number)
    }
    foreign.wait_until(lambda: door.unacknowledged() == 0, "still unacknowledged")


@pytest.mark.slow
@pytest.mark.parametrize("opened", ["classic"], indirect=True)
def test_prefetch_is_the_slots_and_the_buffer_shared_by_the_executors(door: Door) -> None:
    installation = door.installation
    for buffer in (0, 1, 100):
        door.make(queue={"prefetch_buffer": buffer})
        prefetches(door, SLOTS + buffer)
    door.make(queue={"prefetch_buffer": 70_000})
    prefetches(door, 65_535, SLOTS + 70_000 - 65_535)

    door.make(queue={"prefetch_buffer": 1})
    worker = installation.start_worker("w2", queues=door.name, concurrency=5)
    installation.ready()
    prefetches(door, SLOTS + 1 + 5)
    second = installation.start_executor("executor 2")
    installation.ready()
    prefetches(door, 4, 4)
    for service in (second, worker):
        service.signal(SIGTERM)
        service.exit_status()
    prefetches(door, SLOTS + 1)


@pytest.mark.parametrize("opened", ["classic"], indirect=True)
@pytest.mark.slow
def test_user_of_a_gate_reaches_nothing_of_muster(opened: Doors, door: Door) -> None:
    """With the rights that the page about gates gives: its own queues, and no exchange but the
    default one."""
    door.make()
    rabbit = opened.installation.backend.rabbit
    assert rabbit is not None
    host, user = door.url.rpartition("/")[2], f"client_of_{door.name}"
    own = f"^{door.name}\\."
    rabbit.control("add_user", user, "secret")
    rabbit.control("set_permissions", "-p", host, user, "^$", "^amq\\.default$", own)
    parts = urlsplit(door.url)
    address = f"{parts.hostname}:{parts.port}/{host}"
    client = foreign.PikaClient(f"amqp://{user}:secret@{address}")
    client.publish(door.input, foreign.task_message("t1", {"text": "hello"}))
    assert client.wait(door.output).told == ("t1", "RESULT_SUCCESS")
    client.close()

    muster = urlsplit(opened.installation.broker_url).path.removeprefix("/")
    elsewhere = f"amqp://{user}:secret@{parts.hostname}:{parts.port}/{muster}"
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError):
        foreign.PikaClient(elsewhere)


@pytest.mark.slow
def test_delivery_that_is_held_for_long_costs_no_channel(
    servers_backend: Backend, request: pytest.FixtureRequest
) -> None:
    """The broker closes a channel whose delivery is unacknowledged for longer than its
    `consumer_timeout`; before, the row alone answers for it."""
    rabbit = servers_backend.rabbit
    assert rabbit is not None
    for name, milliseconds in (("consumer_timeout", 10_000), ("channel_tick_interval", 2_000)):
        rabbit.control("eval", f"application:set_env(rabbit, {name}, {milliseconds}).")
    restored = "application:set_env(rabbit, consumer_timeout, 1800000), "
    restored += "application:set_env(rabbit, channel_tick_interval, 60000)."
    request.addfinalizer(partial(rabbit.control, "eval", restored))
    held = {"MUSTER_GATE_HOLD_SECONDS": "4"}
    with doors.installed(servers_backend, "classic", **held) as opened:
        door = opened.make()
        door.make()
        label = f"long {door.name}"
        door.send(label, door.note(label, seconds=HELD_SECONDS), "Note")
        journal = opened.installation.journal
        foreign.wait_until(lambda: bool(journal.starts(label)), "not taken")
        foreign.wait_until(lambda: door.unacknowledged() == 0, "held for too long")

        assert door.client.wait(door.output).told == (label, "RESULT_SUCCESS")

        assert len(journal.starts(label)) == 1
        assert "cut off" not in opened.installation.service("executor").log()
        door.close()
