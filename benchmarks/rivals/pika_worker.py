"""A worker as pika's guide writes it: blocking, one message at a time, each answer confirmed by
itself before its message is acknowledged."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pika  # type: ignore[import-untyped, unused-ignore]

from benchmarks.rivals import task_queue
from benchmarks.rivals.done import ready
from benchmarks.rivals.kombu_loop import begin as begin
from benchmarks.rivals.kombu_loop import is_finished as is_finished
from benchmarks.rivals.kombu_loop import prepare as prepare
from benchmarks.rivals.task_queue import submit as submit

PREFETCH = 100
PERSISTENT = pika.BasicProperties(delivery_mode=2, content_type="application/json")


def answer(channel: Any, method: Any, properties: Any, body: bytes) -> None:
    text = task_queue.answer_of(body).body
    channel.basic_publish("", task_queue.OUTPUT, text, PERSISTENT, mandatory=True)
    channel.basic_ack(method.delivery_tag)


def serve(on_message: Callable[..., None], is_up: Callable[[], Any]) -> None:
    """Consume the input queue for ever; calls `is_up` once it does."""
    link = pika.BlockingConnection(pika.URLParameters(os.environ["BROKER_URL"]))
    channel = link.channel()
    channel.confirm_delivery()
    channel.basic_qos(prefetch_count=PREFETCH)
    channel.basic_consume(task_queue.INPUT, on_message)
    is_up()
    channel.start_consuming()


if __name__ == "__main__":
    serve(answer, ready)
