"""Muster's side of benchmarks of gates: `muster_side`, with a queue whose gate a foreign client
uses. The client's own part is `rivals.task_queue`, the same as for the loops beside it."""

from __future__ import annotations

import time

from benchmarks import muster_side
from benchmarks.muster_side import BULK, CLIENT, NOOP
from benchmarks.remote import BenchmarkError
from benchmarks.rivals import task_queue
from benchmarks.rivals.task_queue import answer_times_ms as answer_times_ms
from benchmarks.rivals.task_queue import submit as submit
from orchestrator.core import clock, executions
from orchestrator.core.models import Execution
from orchestrator.queues.models import Gate, Ticket, WorkQueue

QUEUE, EXHAUSTED = "bench", "exhausted"
PATIENCE_SECONDS = 5.0
BUFFER = 1_000
"""Deliveries that wait unacknowledged beyond the slots: a batch is never short of work."""


def prepare() -> None:
    muster_side.prepare()
    task_queue.declare()
    now = clock.now()
    for name in (QUEUE, EXHAUSTED):
        WorkQueue.objects.create(
            name=name, prefetch_buffer=BUFFER, retry_limit=10, created_at=now, updated_at=now
        )
    Gate.objects.create(
        queue=WorkQueue.objects.get(name=QUEUE),
        broker="default",
        input_queue=task_queue.INPUT,
        output_queue=task_queue.OUTPUT,
        queue_type=task_queue.ARGUMENTS["x-queue-type"],
        classifiers={task_queue.CLASSIFIER: {"action": NOOP.action_ref}},
    )


def limit(*, name: str = QUEUE, max_running: int | None = None) -> None:
    WorkQueue.objects.filter(name=name).update(max_running=max_running)


def begin(*, keep: bool = False) -> None:
    task_queue.empty()
    muster_side.begin(keep=keep)


def wait_in_line(*, count: int) -> None:
    """Have so many executions wait for a queue that starts none of them."""
    WorkQueue.objects.filter(name=EXHAUSTED).update(paused_at=clock.now(), pause_reason="full")
    new = executions.NewExecution(action_ref=NOOP.action_ref, queue=EXHAUSTED)
    for first in range(0, count, BULK):
        news = [new] * min(BULK, count - first)
        executions.request_many(news, requested_by=CLIENT, now=clock.now())


def is_finished(*, count: int) -> bool:
    return task_queue.answered() >= count


def check(*, count: int) -> None:
    """Each message has a ticket that is told, one execution that completed, and one answer. Raises
    BenchmarkError. An answer is there a moment before its ticket says so."""
    until = time.monotonic() + PATIENCE_SECONDS
    while wrong := {what: n for what, n in _found().items() if n != count}:
        if time.monotonic() > until:
            raise BenchmarkError(f"expected {count} of each, found {wrong}")
        time.sleep(0.05)


def _found() -> dict[str, int]:
    told = Ticket.objects.filter(told_at__isnull=False, execution__isnull=False)
    rows = Execution.objects.filter(queue=QUEUE)
    return {
        "executions": rows.count(),
        "completed": rows.filter(status="completed").count(),
        "tickets that are told": told.count(),
        "answers": task_queue.answered(),
    }
