"""Celery as it is fastest: nothing is tracked, nothing is confirmed, nothing is kept.

The bar to reach while keeping track of everything. Configured as Celery's guide to optimizing
says for many short tasks.
"""

from __future__ import annotations

import os

from celery import Celery, signals
from kombu import Queue

from benchmarks import stamps
from benchmarks.rivals.done import begin, is_finished, mark, ready  # noqa: F401 - called by name

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


@app.task
def noop() -> None:
    mark()


@app.task
def stamp(address: str) -> None:
    stamps.send(address)


@signals.worker_ready.connect
def _say_ready(**_: object) -> None:
    ready()


def prepare() -> None:
    """Nothing: the worker declares its queue."""


def submit(*, count: int, bulk: bool) -> None:
    """Celery has no bulk request; one producer for all spares the search for one each time."""
    with app.producer_or_acquire() as producer:
        for _ in range(count):
            noop.apply_async(producer=producer)


def starts(*, count: int) -> list[float]:
    """Milliseconds from the call that submits a task to its start, each on an idle system."""
    with stamps.Receiver() as receiver:

        def one() -> int:
            stamp.delay(receiver.address)
            return receiver.receive()

        return stamps.timed(one, count)
