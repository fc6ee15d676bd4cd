"""Celery as it is fastest: nothing is tracked, nothing is confirmed, nothing is kept.

The bar to reach while keeping track of everything. Configured as Celery's guide to optimizing
says for many short tasks.
"""

from __future__ import annotations

import os
import random
import time

from celery import Celery, signals
from kombu import Queue

from benchmarks import stamps

app = Celery("rival", broker=os.environ["BROKER_URL"])
app.conf.update(
    task_default_queue="rival",
    task_queues=[Queue("rival", durable=True)],
    # 2: persistent, as Muster's messages are, and Celery's own default
    task_default_delivery_mode=2,
    # the same promise as Muster's at this point: a killed worker loses nothing
    task_acks_late=True,
    # with acks_late, what was not acknowledged is delivered again; 1 would wait for the broker
    # between any two tasks, and the guide says 50 to 150 for tasks that take microseconds
    worker_prefetch_multiplier=64,
    worker_concurrency=2,
    # no result backend: the fastest there is, and nobody knows what became of a task
    result_backend=None,
    task_ignore_result=True,
    worker_disable_rate_limits=True,
    worker_send_task_events=False,
    task_send_sent_event=False,
    worker_redirect_stdouts=False,
    # Celery's default: the broker's word is not awaited
    broker_transport_options={"confirm_publish": False},
)

DONE = os.environ["RIVAL_DONE"]
_done: int | None = None


@app.task
def noop() -> None:
    """A byte into a file that every pool child appends to: how the end of a run is seen. It
    costs about a microsecond."""
    global _done
    if _done is None:
        _done = os.open(DONE, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(_done, b".")


@app.task
def stamp(address: str) -> None:
    stamps.send(address)


@signals.worker_ready.connect
def _say_ready(**_: object) -> None:
    print("ready.", flush=True)


def prepare() -> None:
    """Nothing: the worker declares its queue."""


def begin() -> None:
    os.close(os.open(DONE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC))


def submit(*, count: int, bulk: bool) -> None:
    """Celery has no bulk request; one producer for all spares the search for one each time."""
    with app.producer_or_acquire() as producer:
        for _ in range(count):
            noop.apply_async(producer=producer)


def is_finished(*, count: int) -> bool:
    return os.stat(DONE).st_size >= count


def starts(*, count: int) -> list[float]:
    """Milliseconds from the call that submits a task to its start, each on an idle system."""
    found = []
    with stamps.Receiver() as receiver:
        for _ in range(count):
            time.sleep(random.uniform(0.02, 0.04))
            asked_at = time.monotonic_ns()
            stamp.delay(receiver.address)
            found.append((receiver.receive() - asked_at) / 1e6)
    return found
