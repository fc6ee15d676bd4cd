"""Rejection of messages that Celery's consumer cannot read, or takes for another task.

An exception in its message handler ends the process and requeues the message, which then ends the
next process that takes it, and so on. A message that it cannot decode would be acknowledged and
lost without a trace.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Any

import structlog
from celery import bootsteps
from kombu.message import Message

from orchestrator.core import messages, topology
from orchestrator.core.errors import MusterError
from tasks import app_parts

log = structlog.get_logger(__name__)


class Misplaced(MusterError, ValueError):
    """It belongs in another queue."""


class RejectStep(bootsteps.Step):
    """Puts a guard around the consumer's handler before consumption starts."""

    requires = ("celery.worker.consumer.connection:Connection",)

    def create(self, consumer: Any) -> None:
        make_handler = consumer.create_task_handler
        consumer.create_task_handler = lambda: guarded(make_handler(), consumer)
        consumer.on_decode_error = lambda message, error: reject(message, error, consumer)


def guarded(handle: Callable[[Message], None], consumer: Any) -> Callable[[Message], None]:
    """Wrap the handler so that it rejects messages that are not task messages, and those that
    belong in other queues: they would fail in the pool, already acknowledged, and be lost without a
    trace."""
    is_misplaced = _misplaced(consumer.app.amqp.queues.consume_from)

    def on_message(message: Message) -> None:
        try:
            if is_misplaced(message.headers.get("task")):
                raise Misplaced
            handle(message)
        except messages.UNREADABLE as error:
            reject(message, error, consumer)

    return on_message


def _misplaced(queues: Collection[str]) -> Callable[[Any], bool]:
    """The predicate that is true for a task that belongs in other queues than these. A worker's
    bring dispatches alone; those of an executor's Celery bring nothing that it takes in batches
    (`tasks.batch_scheduler`), and nothing that is for workers."""
    if any(topology.worker_id_of(name) is not None for name in queues):
        return lambda task: task != messages.RUN
    if any(spec.name in queues for spec in topology.hot_queues()):
        return lambda task: False  # a stock Celery worker, which takes them one by one
    # no set: a task of a message may be unhashable
    elsewhere = [*app_parts.lists(), messages.RUN, messages.CANCEL]
    return lambda task: task in elsewhere


def reject(message: Message, error: Exception, consumer: Any) -> None:
    """Dead-letter a message, unless it was settled before the error."""
    log.warning("unreadable message rejected", error=repr(error))
    if not message.acknowledged:
        message.reject_log_error(logging.getLogger(__name__), consumer.connection_errors)
