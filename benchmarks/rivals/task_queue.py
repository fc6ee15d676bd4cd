"""A client of a task queue over AMQP: publishes task messages, and counts the answers.

It imports nothing of Muster, and is the same for a gate and for the loops that it is compared with.
"""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count as numbers
from typing import Any

import amqp
from kombu import Connection

INPUT, OUTPUT = "bench.in", "bench.out"
CLASSIFIER = "Noop"
BATCH = 500
PATIENCE_SECONDS = 20.0

_ids = numbers(1)
ARGUMENTS = {"x-queue-type": os.environ.get("BENCH_QUEUE_TYPE", "classic")}


def declare() -> None:
    with _link() as channel:
        for name in (INPUT, OUTPUT):
            channel.queue_declare(name, durable=True, auto_delete=False, arguments=ARGUMENTS)


def empty() -> None:
    with _link() as channel:
        for name in (INPUT, OUTPUT):
            channel.queue_purge(name)


def submit(*, count: int, bulk: bool) -> None:
    """Publish persistent messages; with `bulk` one wait for the confirms of 500."""
    with _link() as channel:
        confirmed: set[int] = set()
        channel.confirm_select()
        channel.events["basic_ack"].add(lambda tag, multiple: confirmed.add(tag))
        size = BATCH if bulk else 1
        for last in range(1, count + 1):
            channel.basic_publish(message(), "", INPUT, mandatory=True)
            if last % size == 0 or last == count:
                while max(confirmed, default=0) < last:
                    channel.connection.drain_events(timeout=PATIENCE_SECONDS)


def answered() -> int:
    """The answers that the broker has."""
    return int(_watching().queue_declare(OUTPUT, passive=True).message_count)


def message() -> amqp.Message:
    task_id = f"{os.getpid()}.{next(_ids)}"
    task = {
        "version": 3,
        "taskId": task_id,
        "taskClassifier": CLASSIFIER,
        "taskApiVersion": 1,
        "taskData": base64.b64encode(b"{}").decode(),
        "taskStatus": "NEW_TASK",
        "context": {},
    }
    return amqp.Message(json.dumps(task), delivery_mode=2, content_type="application/json")


def id_of(body: bytes) -> str:
    return str(json.loads(body)["taskId"])


def answer_of(body: bytes | str) -> amqp.Message:
    """The answer of a loop: the task, done."""
    task = json.loads(body)
    base64.b64decode(task["taskData"])
    task |= {"taskStatus": "RESULT_SUCCESS", "to": OUTPUT}
    return amqp.Message(json.dumps(task), delivery_mode=2, content_type="application/json")


def answer_times_ms(count: int) -> list[float]:
    """Milliseconds from the publication of one message to the delivery of its answer, each on an
    idle system."""
    times_ms: list[float] = []
    with _link() as channel:
        got: list[Any] = []
        channel.basic_consume(OUTPUT, no_ack=True, callback=got.append)
        for _ in range(count):
            time.sleep(0.03)
            got.clear()
            started = time.perf_counter()
            channel.basic_publish(message(), "", INPUT)
            while not got:
                channel.connection.drain_events(timeout=PATIENCE_SECONDS)
            times_ms.append((time.perf_counter() - started) * 1000)
    return times_ms


@contextmanager
def _link() -> Iterator[Any]:
    with Connection(os.environ["BROKER_URL"]) as link:
        yield link.channel()


@cache
def _watching() -> Any:
    return Connection(os.environ["BROKER_URL"]).channel()
