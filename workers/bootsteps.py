"""What makes a Celery worker one of Muster's: steps that join in when a worker queue is consumed.

`manage.py worker` and `celery -A settings worker -Q worker.7.executions` are the same thing.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Collection
from types import FrameType
from typing import Any
from uuid import UUID

import structlog
from celery import bootsteps, platforms, signals
from celery.worker import state
from django.conf import settings
from kombu import Consumer
from kombu.message import Message

from orchestrator.core import publisher, topology
from workers import processes
from workers.agent import Agent

log = structlog.get_logger(__name__)


class AgentStep(bootsteps.StartStopStep):
    """Registers before the pool forks and before anything is consumed; beats from then on.

    It hears signals before it registers: Celery makes its handlers when all steps are there, and a
    SIGTERM between the two would end the process and leave the row of a worker that is up.
    """

    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        worker.muster_agent = None
        super().__init__(worker, **kwargs)

    def include_if(self, worker: Any) -> bool:
        return _worker_id(worker) is not None

    def create(self, worker: Any) -> None:
        worker_id = _worker_id(worker)
        assert worker_id is not None
        agent = Agent(
            worker_id=worker_id,
            capacity=worker.concurrency,
            pool_kind=worker.pool_cls.__module__.rpartition(".")[2],
        )
        _hear(agent)
        agent.register()
        if agent.is_stopping:
            agent.leave()
            raise SystemExit(os.EX_OK)
        worker.muster_agent = agent
        parent_pid = os.getpid()
        patience_seconds = settings.MUSTER.shutdown_timeout_seconds

        def begin_in_child(**_: Any) -> None:
            # what a child runs may run again elsewhere as soon as this process is gone
            processes.die_with_parent(parent_pid)
            agent.heartbeat.sentinel.close_in_child()

        def beat_while_forking(**_: Any) -> None:
            if not agent.heartbeat.is_alive():
                agent.heartbeat.beat_while_forking()

        signals.worker_process_init.connect(begin_in_child, weak=False)
        signals.worker_before_create_process.connect(beat_while_forking, weak=False)
        signals.worker_shutting_down.connect(
            lambda sig, **_: agent.drain(f"shutting down ({sig})", within_seconds=patience_seconds),
            weak=False,
        )
        signals.worker_ready.connect(lambda **_: agent.admission.consumes(), weak=False)
        signals.worker_shutdown.connect(lambda **_: agent.leave(), weak=False)

    def start(self, worker: Any) -> None:
        worker.muster_agent.start()

    def register_with_event_loop(self, worker: Any, hub: Any) -> None:
        worker.muster_agent.join_loop(hub)


class SignalStep(bootsteps.StartStopStep):
    """Puts back our handlers where Celery has put its own a moment ago: those would wait for what
    runs, whether SIGQUIT or SIGINT came, and exit with 1. Its own for SIGTERM stays."""

    requires = ("workers.bootsteps:AgentStep",)

    def include(self, worker: Any) -> bool:
        included = bool(super().include(worker))
        if included:  # before the pool forks
            worker.steps.remove(self)
            worker.steps.insert(0, self)
        return included

    def include_if(self, worker: Any) -> bool:
        return worker.muster_agent is not None

    def start(self, worker: Any) -> None:
        _hear(worker.muster_agent, but=("SIGTERM",))


def _hear(agent: Agent, *, but: Collection[str] = ()) -> None:
    for name in {"SIGTERM", "SIGINT", "SIGQUIT"} - set(but):
        platforms.signals[name] = _stops(agent, hurry=name == "SIGQUIT")


def _stops(agent: Agent, *, hurry: bool) -> Any:
    """A handler that stops the worker: SIGQUIT at once, SIGINT as SIGTERM does, and at once when
    it comes again. Before it has registered there is nothing to be stopped."""
    worker_pid = os.getpid()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if os.getpid() != worker_pid:
            return  # a pool child, which has not made its own handlers yet
        if agent.may_vanish:
            raise SystemExit(os.EX_OK)
        patience_seconds = settings.MUSTER.shutdown_timeout_seconds
        agent.drain(
            f"shutting down ({signal.Signals(number).name})",
            within_seconds=0 if hurry or agent.is_stopping else patience_seconds,
        )
        state.should_stop = os.EX_OK  # type: ignore[assignment]

    return on_signal


class CancelStep(bootsteps.ConsumerStep):
    """Consumes the worker's cancel queue, on a channel of its own: cancels must get through when
    the worker's prefetch is used up."""

    requires = ("celery.worker.consumer.connection:Connection",)

    def include_if(self, consumer: Any) -> bool:
        return getattr(consumer.controller, "muster_agent", None) is not None

    def get_consumers(self, channel: Any) -> list[Consumer]:
        worker_id = self.agent.worker_id
        topology.declare(channel, topology.worker_queues(worker_id))
        queue = topology.cancel_queue(worker_id).queue()
        return [Consumer(channel, [queue], on_message=self._on_message, auto_declare=False)]

    def start(self, consumer: Any) -> None:
        self.agent: Agent = consumer.controller.muster_agent
        super().start(consumer)

    def _on_message(self, message: Message) -> None:
        try:
            _, kwargs, _ = json.loads(message.body or "")
            key = UUID(kwargs["execution_id"]), int(kwargs["attempt"])
        except publisher.UNREADABLE as error:
            log.warning("unreadable cancel rejected", error=repr(error))
            message.reject()
            return
        self.agent.canceller.cancel(key)
        message.ack()


def _worker_id(worker: Any) -> int | None:
    """The worker whose queue this process consumes, or None if it consumes no such queue."""
    for name in worker.app.amqp.queues.consume_from:
        if (worker_id := topology.worker_id_of(name)) is not None:
            return worker_id
    return None
