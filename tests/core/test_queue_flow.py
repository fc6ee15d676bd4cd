"""What the rows say of the broker's queues, and why the messages are not as many."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.conf import settings
from django.db import connection
from django.test.utils import CaptureQueriesContext

from orchestrator.core import clock, queue_flow, topology
from orchestrator.core.models import ExecutionEvent
from orchestrator.core.queue_depths import Depth
from orchestrator.core.queue_flow import Flow, Flows
from orchestrator.core.shown.queue_flow import difference
from tests.factories import make_execution, make_worker

pytestmark = pytest.mark.django_db


def read(now: datetime) -> Flows:
    return queue_flow.flows(queue_flow.read(now))


def moved(before: str, after: str, *, ago_seconds: float = 1, worker: object = None) -> None:
    """A transition of an execution of this worker, so long ago."""
    now = clock.now()
    execution = make_execution("scheduled", now=now, worker=worker)  # type: ignore[arg-type]
    ExecutionEvent.objects.create(
        execution=execution, event="x", from_status=before, to_status=after, attempt=1,
        actor="w1", at=now - timedelta(seconds=ago_seconds),
    )  # fmt: skip


def test_a_workers_queue_has_what_waits_since_when_and_until_when() -> None:
    now = clock.now()
    worker = make_worker(now=now)
    grace = timedelta(seconds=settings.MUSTER.start_grace_seconds)
    for age in (30, 90):
        sent_at = now - timedelta(seconds=age)
        start_by = sent_at + timedelta(seconds=300) + grace
        make_execution("scheduled", worker=worker, now=now, scheduled_at=sent_at,
                       start_by=start_by)  # fmt: skip
    make_execution("running", worker=worker, now=now)
    flow = read(now).of(topology.worker_queue(worker.pk).name)
    assert flow == Flow(
        waiting=2, oldest_at=now - timedelta(seconds=90), expires_at=now + timedelta(seconds=210)
    )


def test_in_and_out_are_those_of_the_last_minute() -> None:
    worker = make_worker(now=clock.now())
    moved("scheduling", "scheduled", worker=worker)
    moved("scheduling", "scheduled", worker=worker)
    moved("scheduled", "running", worker=worker)
    moved("scheduled", "running", worker=worker, ago_seconds=70)
    flow = read(clock.now()).of(topology.worker_queue(worker.pk).name)
    assert flow is not None
    assert (flow.entered, flow.left) == (2, 1)


def test_requests_are_those_that_no_executor_has_taken() -> None:
    now = clock.now()
    oldest = make_execution("requested", now=now, created_at=now - timedelta(seconds=40))
    make_execution("requested", now=now)
    make_execution("scheduling", now=now)
    flow = read(now).of(topology.requests_queue().name)
    assert flow is not None
    assert (flow.waiting, flow.oldest_at, flow.entered) == (2, oldest.created_at, 3)


def test_of_other_queues_the_rows_say_nothing() -> None:
    flows = read(clock.now())
    assert flows.of(topology.maintenance_queue().name) is None
    assert flows.of(topology.worker_queue(7).name) == Flow()


def test_reading_takes_four_queries_however_many_rows_there_are() -> None:
    now = clock.now()
    for name in ("a", "b", "c"):
        make_execution("scheduled", worker=make_worker(name, now=now), now=now)
    with CaptureQueriesContext(connection) as queries:
        read(now)
    assert len(queries) <= 4


@pytest.mark.parametrize(
    ("waiting", "ready", "consumers", "said"),
    [
        (0, 0, 1, ""),
        (3, 3, 1, ""),
        (3, 1, 1, "fetched"),
        (1, 4, 1, "sent again"),
        (0, 2, 0, "drops them"),
        (3, 3, 0, "worker is away"),
        (3, 1, 0, "several executions"),
        (3, 0, 0, "no message is left"),
    ],
)
def test_a_difference_of_a_workers_queue_is_explained(
    waiting: int, ready: int, consumers: int, said: str
) -> None:
    text = difference(Flow(waiting), Depth(ready, consumers), is_of_worker=True)
    assert said in text
    assert bool(text) == bool(said)


@pytest.mark.parametrize(
    ("flow", "depth", "said"),
    [
        (Flow(2), Depth(2, 1), ""),
        (Flow(2), Depth(0, 1), "without a message"),
        (Flow(1), Depth(5, 1), "went on already"),
        (Flow(5), Depth(5, 0), "no executor is connected"),
        (None, Depth(5, 0), "Nobody takes them"),
        (None, Depth(5, 1), ""),
        (Flow(None), Depth(0, 0), ""),
    ],
)
def test_a_difference_of_a_shared_queue_is_explained(
    flow: Flow | None, depth: Depth, said: str
) -> None:
    text = difference(flow, depth, is_of_worker=False)
    assert said in text
    assert bool(text) == bool(said)
