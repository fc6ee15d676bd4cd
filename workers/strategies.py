"""The worker's handling of its messages, at Celery's extension point `Task.Strategy`.

Celery asks for a strategy whenever its consumer comes up, and calls the function that it returns
with every message of the task. Here each attempt that a message names becomes an Attempt on the
worker's Desk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import structlog
from celery import signals
from celery.worker import state

from orchestrator.core import messages
from workers.agent import Agent
from workers.attempts import Attempt

log = structlog.get_logger(__name__)


def run_claimed(task: Any, app: Any, consumer: Any, **_: Any) -> Callable[..., None]:
    """The strategy of `muster.run`."""
    agent: Agent | None = getattr(consumer.controller, "muster_agent", None)
    if agent is None:
        return _refuse
    agent.loop.attach(consumer)
    eventer = consumer.event_dispatcher

    def on_message(
        message: Any, body: Any, ack: Callable[..., None], reject: Callable[..., None], *_: Any
    ) -> None:
        try:
            first = Attempt(
                message,
                on_ack=ack,
                on_reject=reject,
                app=app,
                hostname=consumer.hostname,
                eventer=eventer,
                task=task,
                connection_errors=consumer.connection_errors,
            )
            attempts = first.divided(messages.dispatched(first.kwargs))
        except Exception as error:  # noqa: BLE001 - decoding foreign bytes can raise anything
            log.warning("unreadable dispatch rejected", error=repr(error))
            message.reject_log_error(logging.getLogger(__name__), consumer.connection_errors)
            return
        for attempt in attempts:
            signals.task_received.send(sender=consumer, request=attempt)
            attempt.send_event(
                "task-received", name=attempt.name, args="()", kwargs=attempt.kwargsrepr, retries=0
            )
            state.task_reserved(attempt)
        agent.desk.offer(attempts)

    return on_message


def _refuse(message: Any, *_: Any) -> None:
    """Reject a message in a process that is not a worker of Muster's. It is in the wrong queue:
    requeued, it would come again at once, and for ever."""
    log.error("dispatch rejected: it reached a process that is no worker")
    message.reject()
