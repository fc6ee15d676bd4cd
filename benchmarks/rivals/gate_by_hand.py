"""The bound of a gate: the least that keeps what it has taken in.

What many would write around the worker of pika's guide: a row and its history for each message,
committed when it is taken in, begun, ended and told, by the statements of `by_hand`. The answer is
confirmed before it is told, and the message acknowledged last. A second copy is known by its task's
id. Two processes share the queue. Nothing counts lost starts, no monitor looks for what a dead
process has left, and nobody is refused.
"""

from __future__ import annotations

import multiprocessing
import uuid
from typing import Any

from benchmarks.rivals import by_hand, pika_worker, task_queue
from benchmarks.rivals.done import ready
from benchmarks.rivals.kombu_loop import is_finished as is_finished
from benchmarks.rivals.task_queue import answer_times_ms as answer_times_ms
from benchmarks.rivals.task_queue import submit as submit

PROCESSES = 2
TAKE_IN = """
    WITH taken AS (
        INSERT INTO execution (id, action, parameters, status, requested_by)
        VALUES (%s, 'noop', %s, 'scheduled', 'amqp') ON CONFLICT DO NOTHING RETURNING id
    )
    INSERT INTO event (execution_id, event) SELECT id, 'schedule' FROM taken
"""


def prepare() -> None:
    by_hand.prepare()
    task_queue.declare()


def begin() -> None:
    by_hand.begin()
    task_queue.empty()


def answer(channel: Any, method: Any, properties: Any, body: bytes) -> None:
    id = str(uuid.uuid5(uuid.NAMESPACE_OID, task_queue.id_of(body)))
    by_hand.connection().execute(TAKE_IN, [id, body.decode()])
    if by_hand.move(id, "scheduled", "running", "claim"):
        by_hand.move(id, "running", "completed", "complete")
    text = task_queue.answer_of(body).body
    channel.basic_publish("", task_queue.OUTPUT, text, pika_worker.PERSISTENT, mandatory=True)
    by_hand.move(id, "completed", "told", "tell")
    channel.basic_ack(method.delivery_tag)


if __name__ == "__main__":
    up = multiprocessing.Semaphore(0)
    serving = [
        multiprocessing.Process(target=pika_worker.serve, args=(answer, up.release), daemon=True)
        for _ in range(PROCESSES)
    ]
    for process in serving:
        process.start()
    for _ in serving:
        up.acquire()
    ready()
    for process in serving:
        process.join()
