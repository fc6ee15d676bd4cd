"""One life of a worker: it registers, beats, stops what it must, and leaves.

The heartbeat is a thread, because a warm shutdown stops the consumer's timers. It beats only
while the consumer's loop turns: a worker whose loop is stuck is no worker.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from importlib import metadata
from typing import Any
from uuid import UUID

import structlog
from amqp.exceptions import PreconditionFailed
from django.conf import settings
from django.db import Error as DatabaseError
from django.db import close_old_connections, connections

from orchestrator import clock, executions, fleet, publisher, topology
from orchestrator.models import Execution
from workers import processes, runtimes
from workers.attempts import Attempt, Desk
from workers.clerks import Claimer, Finisher
from workers.runtimes import limits, shell

log = structlog.get_logger(__name__)

EXIT_LOST = 70
"""Exit status (EX_SOFTWARE) of a worker that was declared lost: its supervisor starts it again."""

LONGEST_LOOP_TICK_SECONDS = 1.0

LATE_SECONDS = 1.0
"""What was claimed and found no slot for this long goes back, to start elsewhere."""


class Agent:
    """What a Celery worker process needs to be one of Muster's workers."""

    def __init__(self, *, worker_id: int, capacity: int, pool_kind: str) -> None:
        self.worker_id = worker_id
        self.capacity = capacity
        self.pool_kind = pool_kind
        self.is_stopping = False
        self.incarnation = 0
        self.name = ""
        self.desk = Desk(self)
        self.claimer = Claimer(self)
        self.finisher = Finisher("")
        self.consumer: Any = None
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)
        self._beat_now = threading.Event()
        self._left = threading.Event()
        self._loop_ticked_at = time.monotonic()
        self._canceled_early: dict[UUID, int] = {}

    # --- begin ---

    def register(self) -> None:
        """Begin a new life: declare the queues, then register, before the pool forks.

        In this order: a worker that is known but has no queue would be sent what nobody takes.
        """
        _declare(self.worker_id)
        worker = fleet.register(
            worker_id=self.worker_id,
            capacity=self.capacity,
            runtimes=runtimes.OFFERED,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=_version(),
            now=clock.now(),
        )
        self.name, self.incarnation = worker.name, worker.incarnation
        # what an earlier life left behind, when it was killed, must not overlap with this one
        processes.kill_all(f"{self.worker_id}.{self.incarnation - 1}")
        shell.remove_left_work_dirs()
        # inherited by pool children and their actions: how all of them are found again
        os.environ[processes.WORKER_TOKEN] = f"{self.worker_id}.{self.incarnation}"
        # a connection must not be shared with the children
        connections.close_all()

    def start(self) -> None:
        """Start the threads: after the fork, so that no child inherits half a thread."""
        self.finisher.actor = self.name
        self.finisher.start()
        self.claimer.start()
        threading.Thread(target=self._beat, name="muster-heartbeat", daemon=True).start()

    def attach(self, consumer: Any) -> None:
        """A consumer came up, for the first time or again: its loop is the one to wake."""
        self.consumer = consumer
        self.desk.forget_waiting()
        self.desk.pool = consumer.pool
        consumer.hub.add_reader(self._wake_reader, self._on_wake)
        consumer.hub.call_repeatedly(_loop_tick_seconds(), self._on_loop_tick)
        self._on_loop_tick()

    # --- the consumer's loop ---

    def wake(self) -> None:
        """Let the consumer's loop look for work. From any thread."""
        with contextlib.suppress(BlockingIOError):  # so many wakes are waiting already
            os.write(self._wake_writer, b"\0")

    def _on_wake(self, *_: Any) -> None:
        try:
            os.read(self._wake_reader, 65_536)
        except BlockingIOError:
            return
        self.desk.claim_waiting()

    def _on_loop_tick(self) -> None:
        self._loop_ticked_at = time.monotonic()
        self._adapt_prefetch()
        if late := self.desk.take_back(older_than_seconds=LATE_SECONDS):
            threading.Thread(target=self._give_back_late, args=(late,), daemon=True).start()
        # Celery may miss the end of a child that was killed, and looks again only in five seconds
        self.desk.pool.maintain_pool()
        # a wake that came while no loop was there to see it
        self.desk.claim_waiting()

    def _adapt_prefetch(self) -> None:
        """Let the broker send ahead what will be claimed within a tenth of a second.

        What was sent ahead is out of its TTL's reach, so a slow worker gets little of it.
        """
        wanted = 2 * self.capacity + self.desk.ended_lately() // 10
        step = 1 << (wanted - 1).bit_length()
        if self.consumer.qos is not None:
            self.consumer.qos.value = step  # the loop tells the broker when it has changed

    # --- the heartbeat's thread ---

    def _beat(self) -> None:
        interval_seconds = settings.MUSTER.heartbeat_interval_seconds
        # one interval before others may believe us dead, so that no second attempt overlaps
        limit_seconds = settings.MUSTER.staleness_seconds - interval_seconds
        renewed_at = time.monotonic()
        while not self._left.is_set():
            asked_at = time.monotonic()
            try:
                if self._loop_turns():
                    told = fleet.beat(
                        worker_id=self.worker_id, incarnation=self.incarnation, now=clock.now()
                    )
                    if told is fleet.Told.LOST:
                        self._die("it was declared lost or replaced")
                    renewed_at = asked_at
                self._stop_canceled()
                close_old_connections()
            except DatabaseError:
                log.exception("heartbeat not renewed")
                connections.close_all()
            if not self._loop_turns():
                log.error("the consumer's loop is stuck, no heartbeat")
            if time.monotonic() - renewed_at > limit_seconds:
                self._die("its heartbeat could not be renewed")
            self._beat_now.wait(interval_seconds)
            self._beat_now.clear()

    def _loop_turns(self) -> bool:
        """Whether the consumer's loop ticked lately, or has no reason to: while the broker is
        away there is no loop, and what runs here goes on."""
        if self.is_stopping or self.consumer is None or self.consumer.connection is None:
            return True
        silent_seconds = time.monotonic() - self._loop_ticked_at
        return bool(silent_seconds < settings.MUSTER.staleness_seconds - 2 * _loop_tick_seconds())

    def _stop_canceled(self) -> None:
        for execution_id, attempt in executions.to_stop(
            worker_id=self.worker_id, incarnation=self.incarnation
        ):
            self.stop(execution_id, attempt)

    def _die(self, why: str) -> None:
        """Kill all that runs here and exit at once: others act on our being gone."""
        log.critical("worker gives up", worker=self.name, why=why)
        if self.pool_kind == "prefork":
            for attempt in list(self.desk.claimed.values()):
                _kill(attempt)
        processes.kill_all(os.environ[processes.WORKER_TOKEN])
        os._exit(EXIT_LOST)

    # --- cancel ---

    def stop(self, execution_id: UUID, attempt_number: int) -> None:
        """Stop one attempt that runs here: SIGTERM, after a grace SIGKILL. Asking twice is
        harmless; an attempt that is not here has ended, or its message comes to nothing."""
        attempt = self.desk.claimed.get(execution_id)
        if attempt is None or attempt.number != attempt_number or attempt.is_canceling:
            return
        attempt.is_canceling = True
        threading.Thread(target=self._stop, args=(attempt,), daemon=True).start()

    def _stop(self, attempt: Attempt) -> None:
        grace_seconds = settings.MUSTER.cancel_grace_seconds
        if attempt.execution.action.runtime != "python":
            processes.terminate(
                str(attempt.execution_id), attempt.number, grace_seconds=grace_seconds
            )
        elif self.pool_kind == "prefork":
            # the action lives in the pool child itself, which the pool replaces
            _kill(attempt)
        else:
            limits.interrupt(str(attempt.execution_id))

    # --- end ---

    def drain(self, reason: str) -> None:
        """Take no more work, and say so at once; what runs goes on. Called from a signal
        handler, so the writing is left to the heartbeat's thread."""
        if self.is_stopping:
            return
        self.is_stopping = True
        threading.Thread(target=self._drain, args=(reason,), daemon=True).start()

    def _drain(self, reason: str) -> None:
        try:
            fleet.drain(
                worker_id=self.worker_id,
                incarnation=self.incarnation,
                reason=reason,
                now=clock.now(),
            )
            self._give_back()
        except DatabaseError:
            log.exception("could not announce the drain")
        finally:
            connections.close_all()
        if not self._left.wait(settings.MUSTER.shutdown_timeout_seconds) and self.desk.claimed:
            log.error("shutdown timeout: killing what still runs")
            for attempt in list(self.desk.claimed.values()):
                _kill(attempt)
            processes.kill_all(os.environ[processes.WORKER_TOKEN])

    def _give_back(self) -> None:
        unstarted = []
        if self._left.is_set():
            answers = self.claimer.take_answers()
            unstarted = [execution for _, granted in answers for execution in granted or ()]
            unstarted += self.desk.take_back(older_than_seconds=0)
        executions.give_back(
            worker_id=self.worker_id, now=clock.now(), actor=self.name, unstarted=unstarted
        )

    def _give_back_late(self, late: list[Execution]) -> None:
        try:
            executions.give_back(unstarted=late, now=clock.now(), actor=self.name)
        except DatabaseError:
            log.exception("could not give back; the sweep will end them")
        finally:
            connections.close_all()

    def leave(self) -> None:
        """The pool is down: record the last ends, then say goodbye."""
        if not self.incarnation or self._left.is_set():
            return
        self._left.set()
        self.finisher.flush(settings.MUSTER.shutdown_timeout_seconds)
        self.claimer.flush(settings.MUSTER.publish_timeout_seconds)
        try:
            # a claim may have been granted after the loop that would have started it had ended;
            # it goes back first: started on a worker that is gone, it would count as lost
            self._give_back()
            fleet.leave(
                worker_id=self.worker_id,
                incarnation=self.incarnation,
                reason="stopped",
                now=clock.now(),
            )
            # an executor may have chosen this worker just before it heard of the drain
            self._give_back()
            publisher.flush()
        except DatabaseError:
            log.exception("could not say goodbye; the staleness check will notice")


def _loop_tick_seconds() -> float:
    """How often the consumer's loop shows that it turns: several times in any window."""
    tick_seconds: float = settings.MUSTER.staleness_seconds / 8
    return min(LONGEST_LOOP_TICK_SECONDS, tick_seconds)


def _declare(worker_id: int) -> None:
    """Declare the dead letter exchange and queue, and this worker's queues."""
    while True:
        try:
            with publisher.connection() as link:
                topology.declare(link.default_channel, topology.worker_queues(worker_id))
            return
        except PreconditionFailed as error:
            raise SystemExit(
                f"A queue of worker {worker_id} exists with other arguments: {error}\n"
                "`manage.py topology check` shows the difference."
            ) from None
        except publisher.errors() as error:
            log.warning("broker not reachable, trying again", error=repr(error))
            time.sleep(1)


def _version() -> str:
    return metadata.version("celery")


def _kill(attempt: Attempt) -> None:
    """Kill the pool child that runs this attempt, if one has taken it yet."""
    if attempt.worker_pid is not None:
        with contextlib.suppress(ProcessLookupError):  # it ended by itself meanwhile
            os.kill(int(attempt.worker_pid), signal.SIGKILL)
