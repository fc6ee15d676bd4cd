"""The executor's hot queues, consumed in batches by a thread of the Celery worker process.

One statement, one wait for confirms and one acknowledgement for each batch: a task for each message
costs ten times as much. The thread has its own connections to broker and database, so that neither
waits for Celery's loop. After any failure, unacknowledged messages come again.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from celery import bootsteps
from celery.worker import state
from django.conf import settings
from django.db import DatabaseError, InterfaceError, close_old_connections, connections
from kombu import Connection, Consumer
from kombu.message import Message

from orchestrator.core import (
    brokers,
    clock,
    declarations,
    executions,
    fleet,
    messages,
    outages,
    topology,
)
from orchestrator.core.declarations import TopologyDiffers
from orchestrator.core.topology import QueueSpec
from tasks import app_parts
from tasks.app_parts import PartThread
from tasks.patient_consumer import EXIT_REFUSED
from tasks.stalls import Stalls, Watched

log = outages.get_logger(__name__)

ACTOR = "executor"
BACKLOG_EVERY_SECONDS = 1.0
DECLARE_EVERY_SECONDS = 10.0
"""A queue that somebody has deleted is declared again after this time, even without messages."""
PAUSE_AFTER_ERROR_SECONDS = 1.0

GAP_SECONDS = 0.008
"""The least time between two batches of requests. The first after a pause is taken at once; under
load a statement for ten executions costs little more than one for two."""


class Scheduler(Watched):
    """Turns incoming messages, and the backlog in the database, into dispatched executions."""

    def __init__(self, parts: Sequence[PartThread]) -> None:
        super().__init__(name="muster-scheduler", daemon=True)
        self.stopping = threading.Event()
        self.parts = {thread.part.queue.message: thread for thread in parts}
        self.lists = app_parts.lists()
        self.placement = fleet.Placement()
        self.received: list[Message] = []
        self.backlog_at = 0.0
        self.declare_at = 0.0
        self.next_batch_at = 0.0
        self.backlog_waits = True

    def run(self) -> None:
        while not self.stopping.is_set():
            self.busy_since = time.monotonic()
            try:
                with brokers.connection() as link:
                    self._consume(link)
            except TopologyDiffers as differs:
                _refuse_to_run(differs)
                break
            except (DatabaseError, InterfaceError) as error:
                self.note_failure(error)
                log.exception("database error; unacknowledged messages come again")
            except brokers.errors() as error:
                log.warning(
                    "broker connection lost; connecting again", error=brokers.explain(error)
                )
            except Exception as error:
                # the thread must survive every fault, because the promise depends on it
                self.note_failure(error)
                log.exception("scheduling failed; starting again")
            finally:
                self.received.clear()
                close_old_connections()
                self.busy_since = 0.0
            # with the broker down the backlog cannot be dispatched, so there is no hurry
            self.stopping.wait(PAUSE_AFTER_ERROR_SECONDS)
        connections.close_all()

    def stop(self) -> None:
        self.stopping.set()
        self.join(timeout=10)

    def _consume(self, link: Connection) -> None:
        present = self._declare(link)
        channel = link.channel()
        executions.dispatch_again(now=clock.now(), actor=ACTOR)
        limit: int = settings.MUSTER.batch_size
        specs = [spec for spec in topology.hot_queues() if spec in present]
        consumer = Consumer(
            channel,
            queues=[spec.queue() for spec in specs],
            on_message=self.received.append,
            prefetch_count=2 * limit,
            auto_declare=False,
        )
        with consumer:
            for spec in specs:
                log.info("Consumer started", queue=spec.name, prefetch=2 * limit)
            while not self.stopping.is_set():
                self.busy_since = 0.0
                self._gather(link, limit)
                self.busy_since = time.monotonic()
                if self.received:
                    batch, self.received[:] = self.received[:limit], self.received[limit:]
                    self._take_in(batch)
                elif time.monotonic() >= self.backlog_at:
                    # only when idle: under load every completion reads the backlog
                    close_old_connections()
                if time.monotonic() >= self.backlog_at:
                    self._schedule_backlog(limit)
                if time.monotonic() >= self.declare_at and self._declare(link) != present:
                    return

    def _declare(self, link: Connection) -> list[QueueSpec]:
        """Declare the executors' queues; returns them without those that are away with their node
        of a cluster: what they would tell is found by looking. Raises TopologyDiffers, and detects
        a dead connection."""
        self.declare_at = time.monotonic() + DECLARE_EVERY_SECONDS
        wanted = topology.shared_queues()
        present = declarations.declare_present(link, wanted)
        if away := [spec.name for spec in wanted if spec not in present]:
            log.warning("queues are away with their node, going on without", queues=away)
        return present

    def _gather(self, link: Connection, limit: int) -> None:
        """Wait for a message, then take all that are there, and those that come within the gap."""
        try:
            while len(self.received) < limit:
                until = self.next_batch_at if self.received else self.backlog_at
                seconds = until - time.monotonic()
                if seconds > 0:
                    link.drain_events(timeout=seconds)
                else:
                    brokers.drain_come(link)
        except (TimeoutError, socket.timeout):  # noqa: UP041 - kombu's virtual transports
            pass

    def _take_in(self, batch: list[Message]) -> None:
        """Carry out a batch, then acknowledge it as a whole; an unreadable message is
        dead-lettered."""
        requested: dict[bool, list[UUID]] = {False: [], True: []}
        completed: list[UUID] = []
        for_parts: dict[str, list[UUID]] = {message: [] for message in self.parts}
        last = None
        for message in batch:
            try:
                task, ids = self._read(message)
            except messages.UNREADABLE as error:
                log.warning("unreadable message rejected", error=repr(error))
                message.reject()
                continue
            last = message
            if task == messages.COMPLETED:
                completed += ids
            elif task in for_parts:
                for_parts[task] += ids
            else:
                redelivered = bool((message.delivery_info or {}).get("redelivered"))
                requested[redelivered] += ids
        for task, thread in self.parts.items():
            thread.give(ended=completed, received=for_parts[task])
        if completed:
            executions.note_completed(completed, placement=self.placement)
            self.backlog_waits |= bool(executions.note_ended(completed, now=clock.now()))
            if self.backlog_waits and self.placement.has_room():
                self._schedule_backlog(settings.MUSTER.batch_size)
        for redelivered, ids in requested.items():
            if ids:
                self.next_batch_at = time.monotonic() + GAP_SECONDS
                self.backlog_waits |= executions.schedule(
                    ids,
                    placement=self.placement,
                    now=clock.now(),
                    actor=ACTOR,
                    redelivered=redelivered,
                )
        if last is not None:
            last.ack(multiple=True)

    def _read(self, message: Message) -> tuple[str, list[UUID]]:
        """Read the task's name and its ids. Raises ValueError, KeyError or TypeError."""
        task = message.headers["task"]
        listed = self.lists.get(task)
        if listed is None:
            raise ValueError(f"{task!r} does not belong in this queue")
        _, kwargs, _ = json.loads(message.body or "")
        return task, [UUID(id) for id in kwargs[listed]]

    def _schedule_backlog(self, limit: int) -> None:
        self.backlog_at = time.monotonic() + BACKLOG_EVERY_SECONDS
        self.backlog_waits = executions.schedule_backlog(
            placement=self.placement, now=clock.now(), actor=ACTOR, limit=limit
        )


def _refuse_to_run(differs: TopologyDiffers) -> None:
    """Stop the executor: its messages would not reach the right queues."""
    log.critical("stopped: the broker has other queues", differs=str(differs))
    state.should_stop = EXIT_REFUSED  # type: ignore[assignment]


def _refuse_other_queues() -> None:
    """Check the broker's queues. Raises SystemExit if they differ; a broker that is away is not an
    error."""
    try:
        with brokers.connection() as link:
            declarations.declare(link, topology.shared_queues())
    except TopologyDiffers as differs:
        raise SystemExit(str(differs)) from None
    except brokers.errors() as error:
        log.warning("broker not reachable", error=brokers.explain(error))


class SchedulerStep(bootsteps.StartStopStep):
    """Runs the scheduler, and the parts of apps that it feeds, in every process that consumes the
    hot queues."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        self.threads: list[Scheduler | PartThread | Stalls] = []
        super().__init__(worker, **kwargs)

    def include_if(self, worker: Any) -> bool:
        return topology.requests_queue().name in worker.app.amqp.queues.consume_from

    def create(self, worker: Any) -> None:
        _refuse_other_queues()
        app_parts.load()
        # Celery's own consumer must not compete for messages that the thread takes in batches
        worker.app.amqp.queues.deselect([spec.name for spec in topology.hot_queues()])
        worker.queues_beside = [spec.queue() for spec in topology.hot_queues()]

    def start(self, worker: Any) -> None:
        parts = [PartThread(part) for part in app_parts.parts()]
        busy: list[Scheduler | PartThread] = [Scheduler(parts), *parts]
        worker.muster_watched = [*busy]  # whose troubles are this executor's
        self.threads = [*busy, Stalls(busy)]
        for thread in self.threads:
            thread.start()

    def stop(self, worker: Any) -> None:
        if not self.threads:
            return
        log.info("Executor shutting down gracefully", node=worker.hostname)
        while self.threads:
            self.threads.pop(0).stop()
        log.info("Executor shutdown complete", node=worker.hostname)

    def terminate(self, worker: Any) -> None:
        self.stop(worker)
