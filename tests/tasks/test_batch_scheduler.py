"""The executor's batches: what is readable is done and acknowledged, the rest dead-lettered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from orchestrator.core import clock, messages, publisher, topology
from orchestrator.core.models import Execution
from tasks.app_parts import PartThread, parts
from tasks.batch_scheduler import Scheduler
from tests.factories import make_execution, make_worker
from tests.rows import reread
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    thread = Scheduler([PartThread(part) for part in parts()])
    yield thread
    thread.stop()
    assert not thread.is_alive()


def count(channel: Any, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).message_count)


def test_scheduler_does_what_it_can_read_and_dead_letters_the_rest(
    channel: Any, scheduler: Scheduler
) -> None:
    worker = make_worker(now=clock.now(), capacity=20)
    topology.declare(channel, [*topology.shared_queues(), *topology.worker_queues(worker.pk)])
    rows = [make_execution(now=clock.now()) for _ in range(5)]
    publisher.send(messages.requested([row.pk for row in rows[:3]]))
    requests = topology.requests_queue()
    for body, task in (
        (b"odd", messages.SCHEDULE),
        (b"[[], {}, {}]", messages.SCHEDULE),
        (b'[[], {"execution_ids": []}, {}]', messages.RUN),
        (b'[[], {"execution_ids": ["x"]}, {}]', messages.COMPLETED),
    ):
        odd = channel.prepare_message(body, headers={"task": task})
        channel.basic_publish(odd, requests.exchange, requests.routing_key)
    publisher.send(messages.requested([row.pk for row in rows[3:]]))

    scheduler.start()
    wait_until(lambda: Execution.objects.filter(status="scheduled").count() == len(rows))
    wait_until(lambda: count(channel, topology.dead_letter_queue().name) == 4)
    scheduler.stop()
    assert count(channel, requests.name) == 0, "all were acknowledged"
    queue = topology.worker_queue(worker.pk).name
    listed = []
    while message := channel.basic_get(queue, no_ack=True):
        listed += messages.dispatched(json.loads(message.body)[1])
    assert sorted(listed) == sorted((row.pk, 1) for row in rows)


def test_scheduler_finds_in_the_backlog_what_no_message_told_of(
    channel: Any, scheduler: Scheduler
) -> None:
    worker = make_worker(now=clock.now())
    topology.declare(channel, [*topology.shared_queues(), *topology.worker_queues(worker.pk)])
    execution = make_execution(now=clock.now())
    scheduler.start()
    wait_until(lambda: reread(execution).status == "scheduled")


def test_scheduler_that_fails_goes_on_and_notes_where_it_failed(
    channel: Any, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: Any) -> bool:
        raise TypeError

    monkeypatch.setattr("orchestrator.core.executions.schedule_backlog", fail)
    scheduler.start()
    wait_until(lambda: scheduler.failed_at > scheduler.failing_since)
    assert scheduler.failure.startswith("TypeError (test_batch_scheduler.py, line ")
