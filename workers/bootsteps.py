"""Celery boot steps that make a worker one of Muster's, if it consumes a worker queue.

`manage.py worker` and `celery -A settings worker -Q worker.7.executions` do the same.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Collection
from concurrent.futures import Executor
from types import FrameType
from typing import Any
from uuid import UUID

import structlog
from celery import bootsteps, platforms, signals
from celery.worker import state
from django.conf import settings
from kombu import Consumer
from kombu.message import Message

from orchestrator.core import messages, topology
from workers import credentials, hiding, open_files, processes
from workers.agent import Agent
from workers.runtimes import warm_process

log = structlog.get_logger(__name__)

THREADS_SECONDS = 30.0
"""The longest time in which all threads of a pool begin."""


class AgentStep(bootsteps.StartStopStep):
    """Registers before the pool forks and before anything is consumed; sends heartbeats from then
    on.

    It handles signals before it registers: Celery installs its handlers after all steps are
    created, and a SIGTERM in between would end the process and leave the row of a worker that is
    up.
    """

    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, replace: bool = False, **kwargs: Any) -> None:
        worker.muster_agent = None
        self.replaces = replace
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
            replaces=self.replaces,
        )
        _hear(agent)
        open_files.allow(worker.concurrency)
        hiding.guard()
        credentials.forget()
        agent.register()
        if agent.is_stopping:
            agent.departure.leave()
            raise SystemExit(os.EX_OK)
        worker.muster_agent = agent
        parent_pid = os.getpid()
        patience_seconds = settings.MUSTER.shutdown_timeout_seconds

        def begin_in_child(**_: Any) -> None:
            # a child's action may run again elsewhere as soon as this process is gone
            processes.die_with_parent(parent_pid)
            hiding.forget_all()
            agent.heartbeat.sentinel.close_in_child()

        def beat_while_forking(**_: Any) -> None:
            if not agent.heartbeat.is_alive():
                agent.heartbeat.beat_while_forking()

        signals.worker_process_init.connect(begin_in_child, weak=False)
        signals.worker_process_shutdown.connect(lambda **_: warm_process.end_all(), weak=False)
        signals.worker_before_create_process.connect(beat_while_forking, weak=False)
        signals.worker_shutting_down.connect(
            lambda sig, **_: agent.departure.drain(
                f"shutting down ({sig})", within_seconds=patience_seconds
            ),
            weak=False,
        )
        signals.worker_ready.connect(lambda **_: agent.admission.consumes(), weak=False)
        signals.worker_shutdown.connect(lambda **_: agent.departure.leave(), weak=False)

    def start(self, worker: Any) -> None:
        if (threads := getattr(worker.pool, "executor", None)) is not None:
            _make_threads(threads, worker.concurrency)
        worker.muster_agent.start()

    def stop(self, worker: Any) -> None:
        """Called between the end of the consumer's loop and that of the pool."""
        worker.muster_agent.desk.take_unsent()

    def terminate(self, worker: Any) -> None:
        """Called in place of `stop` by a Celery worker that ends after an error of its own."""
        self.stop(worker)

    def register_with_event_loop(self, worker: Any, hub: Any) -> None:
        worker.muster_agent.loop.join(hub)


class SignalStep(bootsteps.StartStopStep):
    """Restores our signal handlers, which Celery has just replaced: Celery's would wait for running
    actions after SIGQUIT and SIGINT alike, and exit with 1. Its handler of SIGTERM stays."""

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


def _make_threads(executor: Executor, slots: int) -> None:
    """Have a pool of threads make all of them now: later, actions may have left no room for one."""
    all_there = threading.Barrier(slots + 1)
    for _ in range(slots):
        executor.submit(all_there.wait, THREADS_SECONDS)
    all_there.wait(THREADS_SECONDS)


def _hear(agent: Agent, *, but: Collection[str] = ()) -> None:
    for name in {"SIGTERM", "SIGINT", "SIGQUIT"} - set(but):
        platforms.signals[name] = _stops(agent, hurry=name == "SIGQUIT")


def _stops(agent: Agent, *, hurry: bool) -> Any:
    """Make a handler that stops the worker: SIGQUIT at once, SIGINT like SIGTERM, and at once when
    it comes again. Before the registration there is nothing to stop."""
    worker_pid = os.getpid()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if os.getpid() != worker_pid:
            return  # a pool child, which has not installed its own handlers yet
        if agent.may_vanish:
            raise SystemExit(os.EX_OK)
        patience_seconds = settings.MUSTER.shutdown_timeout_seconds
        agent.departure.drain(
            f"shutting down ({signal.Signals(number).name})",
            within_seconds=0 if hurry or agent.is_stopping else patience_seconds,
        )
        state.should_stop = os.EX_OK  # type: ignore[assignment]

    return on_signal


class CancelStep(bootsteps.ConsumerStep):
    """Consumes the worker's cancel queue on its own channel: cancels must arrive even when the
    worker's prefetch is used up. A message is a hint: the rows say what is to be stopped."""

    requires = ("celery.worker.consumer.connection:Connection",)

    def include_if(self, consumer: Any) -> bool:
        return getattr(consumer.controller, "muster_agent", None) is not None

    def get_consumers(self, channel: Any) -> list[Consumer]:
        worker_id = self.agent.worker_id
        queue = topology.cancel_queue(worker_id).queue()
        return [Consumer(channel, [queue], on_message=self._on_message)]

    def start(self, consumer: Any) -> None:
        self.agent: Agent = consumer.controller.muster_agent
        super().start(consumer)
        self.agent.loop.cancel_consumers = self.consumers
        queue = topology.cancel_queue(self.agent.worker_id).queue()
        consumer.controller.queues_beside = [queue]
        log.info("Consumer started", queue=queue.name, prefetch=0)

    def _on_message(self, message: Message) -> None:
        try:
            _, kwargs, _ = json.loads(message.body or "")
            log.debug("hint of a cancel", execution_id=str(UUID(kwargs["execution_id"])))
        except messages.UNREADABLE as error:
            log.warning("unreadable cancel rejected", error=repr(error))
            message.reject()
            return
        self.agent.heartbeat.look_for_cancels_soon()
        message.ack()


def _worker_id(worker: Any) -> int | None:
    """The worker whose queue this process consumes, or None if it consumes no such queue."""
    for name in worker.app.amqp.queues.consume_from:
        if (worker_id := topology.worker_id_of(name)) is not None:
            return worker_id
    return None
