"""One life of a worker: registration, its part in the consumer's loop, drain, and departure."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from importlib import metadata
from typing import Any
from uuid import UUID

import structlog
from amqp.exceptions import AccessRefused, NotFound
from celery.bootsteps import RUN  # type: ignore[attr-defined]
from celery.worker import state
from django.conf import settings
from django.db import Error as DatabaseError
from django.db import connections, transaction

from orchestrator.core import (
    brokers,
    clock,
    database,
    declarations,
    executions,
    fleet,
    isolation,
    publisher,
    topology,
)
from orchestrator.core.models import Execution
from orchestrator.core.reasons import Reason
from orchestrator.core.states import AttemptKey
from workers import liveness, processes, runtimes, timers
from workers.admission import Admission
from workers.canceller import Canceller
from workers.code import CodeWatch
from workers.database_threads import Claimer, Finisher
from workers.desk import Desk
from workers.heartbeat import Heartbeat
from workers.live_output import LiveOutput
from workers.pauses import Pauses
from workers.probes import Prober
from workers.releases import Releases
from workers.runtimes import container, warm_process, work_dirs

log = structlog.get_logger(__name__)

EXIT_LOST = 70
"""Exit status (EX_SOFTWARE) of a worker that was declared lost: its supervisor starts it again."""

LONGEST_LOOP_TICK_SECONDS = 1.0

LATE_SECONDS = 1.0
"""An attempt claimed but not started within this time is returned to the backlog."""

LOOK_SECONDS = 0.1
LOST_SECONDS = 2.0 * processes.KILL_ROUNDS
"""The longest wait for the end of what killed pool children left behind, their actions' processes
and their own."""
ANNOUNCE_SECONDS = 1.0
"""Between two attempts to announce a drain."""
NOT_GIVEN_BACK = "could not give back; a heartbeat will"
UNSTOPPABLE_SECONDS = 5.0
"""The longest wait for a thread that cannot be stopped, after its time is up."""


class Agent:
    """The parts that make a Celery worker process one of Muster's workers."""

    def __init__(self, *, worker_id: int, capacity: int, pool_kind: str) -> None:
        self.worker_id = worker_id
        self.capacity = capacity
        self.pool_kind = pool_kind
        self.may_vanish = True
        """True while nothing of this life is written anywhere: it may end without a trace."""
        self.is_stopping = False
        self.is_paused = False
        self.incarnation = 0
        self.name = ""
        self.desk = Desk(self)
        self.claimer = Claimer(self)
        self.live_output = LiveOutput(self)
        self.finisher = Finisher(self)
        self.canceller = Canceller(self)
        self.heartbeat = Heartbeat(self)
        self.releases = Releases(self)
        self.code = CodeWatch(self)
        self.pauses = Pauses(self)
        self.admission = Admission(self)
        self.consumer: Any = None
        self.cancel_consumers: list[Any] = []
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)
        self.stops = threading.Event()
        self._stop_reason = ""
        self._kill_at = float("inf")
        """The time at which a stopping worker kills what still runs; by `time.monotonic`."""
        self._pool_is_down = threading.Event()
        self._giving_back = threading.Lock()
        """Held from the taking of unstarted attempts until they are given back: a worker that signs
        off before that has lost them."""
        self._goes_with_threads = False
        self._loop_ticked_at = time.monotonic()

    # --- begin ---

    def register(self) -> None:
        """Begin a new life: declare the queues, then register, before the pool forks.

        In this order: messages for a known worker without a queue would get lost. It gets no work
        before it consumes, see `Admission`: until then it may not even notice a request to stop.
        """
        _declare(self.worker_id)
        database.wait_until_reachable()
        self.may_vanish = False
        worker = fleet.register(
            worker_id=self.worker_id,
            capacity=self.capacity,
            runtimes=runtimes.offered(),
            isolation=isolation.of_processes(),
            host=socket.gethostname(),
            pid=os.getpid(),
            version=_version(),
            is_ready=False,
            missing_code=self.code.survey(),
            now=clock.now(),
        )
        self.name, self.incarnation = worker.name, worker.incarnation
        # processes that a killed earlier life left behind must not overlap with this one
        earlier = self._token(self.incarnation - 1)
        processes.kill_all(earlier)
        container.remove_left(earlier)
        work_dirs.remove_left()
        if os.geteuid() == 0 and not settings.MUSTER.action_user:
            log.warning("this worker is root, and so are its actions: set MUSTER_ACTION_USER")
        # inherited by pool children and their actions, so that all of them can be found again
        os.environ[processes.WORKER_TOKEN] = self._token(self.incarnation)
        self.heartbeat.sentinel.renew()
        # a connection must not be shared with the children
        connections.close_all()

    def _token(self, incarnation: int) -> str:
        """The unique name of one life of one worker on this machine."""
        return f"{database.fingerprint()}.{self.worker_id}.{incarnation}"

    def start(self) -> None:
        """Start the threads: after the fork, so that no child inherits half a thread."""
        self.live_output.start()
        self.finisher.start()
        self.claimer.start()
        self.heartbeat.start()
        self.releases.start()
        Prober(self).start()
        self.pauses.start()
        # waits for the signal: by then there may be no room for a thread
        threading.Thread(target=self._drain, name="muster-drain", daemon=True).start()

    def attach(self, consumer: Any) -> None:
        """Use this consumer, which came up for the first time or again: its loop is the one to
        wake."""
        self.consumer = consumer
        self.desk.forget_waiting()
        self.desk.pool = consumer.pool
        self._on_loop_tick()
        if self.is_paused:  # Celery is about to consume
            consumer.hub.call_soon(self._heed_pause)

    # --- the consumer's loop ---

    def join_loop(self, hub: Any) -> None:
        """Join the consumer's loop, which starts with or without a connection."""
        hub.add_reader(self._wake_reader, self._on_wake)
        hub.call_repeatedly(_loop_tick_seconds(), self._on_loop_tick)
        hub.call_repeatedly(timers.EVERY_SECONDS, timers.Timers(hub.timer).tidy)

    def on_loop(self, do: Callable[[], None]) -> None:
        """Call this soon in the consumer's loop, or at once if there is no loop any more."""
        if self.is_stopping or self.consumer is None:
            do()
        else:
            self.consumer.hub.call_soon(do)

    def wake(self) -> None:
        """Let the consumer's loop look for work. From any thread."""
        with contextlib.suppress(BlockingIOError):  # enough wakes are waiting already
            os.write(self._wake_writer, b"\0")

    def _on_wake(self, *_: Any) -> None:
        try:
            os.read(self._wake_reader, 65_536)
        except BlockingIOError:
            return
        self.desk.claim_waiting()

    def _on_loop_tick(self) -> None:
        self._loop_ticked_at = time.monotonic()
        if self.heartbeat.is_overdue:
            self.die("its heartbeat could not be renewed")
        if self.consumer is None:
            return
        self._adapt_prefetch()  # while it is known what is held
        self.desk.ask_again_for_held()
        if late := self.desk.take_back(older_than_seconds=LATE_SECONDS):
            self.give_back_late(late)
        # Celery may miss the end of a child that was killed, and looks again only in five seconds
        self.desk.pool.maintain_pool()
        # for a wake that came while there was no loop
        self.desk.claim_waiting()

    def _adapt_prefetch(self) -> None:
        """Let the broker send early what will be claimed within a tenth of a second.

        The TTL does not apply to delivered messages, so a slow worker gets few. Attempts that wait
        for a row of another transaction must not keep the others away.
        """
        wanted = 2 * self.capacity + self.desk.ended_last_second() // 10 + len(self.desk.held)
        step = 1 << (wanted - 1).bit_length()
        if self.consumer.qos is not None:
            self.consumer.qos.value = step  # the loop tells the broker when it has changed

    def loop_turns(self, *, within_seconds: float) -> bool:
        """Return True if the consumer's loop ticked recently, or need not: while the broker is away
        it may wait for a connection, and running actions go on."""
        if self.is_stopping or self.consumer is None or self.consumer.connection is None:
            return True
        silent_seconds = time.monotonic() - self._loop_ticked_at
        return silent_seconds < within_seconds

    # --- unfit for work, and fit again ---

    @property
    def takes_work(self) -> bool:
        return not (self.is_stopping or self.is_paused)

    def pause(self) -> None:
        """Consume nothing and claim nothing. Delivered messages wait, and their claim is refused if
        the execution has gone elsewhere. May be called from any thread."""
        if not self.is_paused:
            self.is_paused = True
            self.on_loop(self._heed_pause)

    def resume(self) -> None:
        """Consume again after `pause`. May be called from any thread."""
        if self.is_paused:
            self.is_paused = False
            self.on_loop(self._heed_pause)

    def _heed_pause(self) -> None:
        """Consume or not, as it is wanted by now: the loop calls in no order what it is to call
        soon."""
        # one that stops has no loop any more: this may be another thread
        if self.is_stopping or not self.is_connected:
            return
        if self.is_paused:
            self.consumer.task_consumer.cancel()
        else:
            self.consumer.task_consumer.consume()
            self.desk.claim_waiting()

    def consume_again(self) -> None:
        """Consume both queues again; a worker that is paused, that of cancels. May be called from
        any thread."""
        self.on_loop(self._consume_again)

    def _consume_again(self) -> None:
        if self.is_stopping or not self.is_connected:
            return
        # while a process ends, its loop does what is left to do, with a connection that is closed
        if self.consumer.controller.blueprint.state == RUN:
            of_work = () if self.is_paused else (self.consumer.task_consumer,)
            for consumer in (*self.cancel_consumers, *of_work):
                consumer.cancel()
                consumer.consume()

    @property
    def is_connected(self) -> bool:
        """True if there is a connection to the broker, as far as is known."""
        consumer = self.consumer
        return consumer is not None and None not in (consumer.connection, consumer.task_consumer)

    # --- end ---

    def die(self, why: str) -> None:
        """Kill all actions and exit at once: others already treat this worker as gone."""
        log.critical("worker gives up", worker=self.name, why=why)
        self.is_stopping = True
        try:
            self._kill_all()
        except Exception:
            log.exception("could not kill all that runs; the sentinel will")
        os._exit(EXIT_LOST)

    def drain(self, reason: str, *, within_seconds: float) -> None:
        """Take no more work, announce it at once, and end what still runs after this many seconds.

        Called from signal handlers, so a thread does the writing, see `_drain`. Another call can
        only shorten the time.
        """
        self._kill_at = min(self._kill_at, time.monotonic() + within_seconds)
        if self.is_stopping:
            return
        self._stop_reason = reason
        self.is_stopping = True
        self.stops.set()
        liveness.notify("STOPPING=1")

    def finish_and_go(self) -> None:
        """Drain for an operator: running actions get unlimited time."""
        self.drain("drained", within_seconds=float("inf"))
        state.should_stop = os.EX_OK  # type: ignore[assignment]
        self.wake()

    def _drain(self) -> None:
        """Wait for a request to stop; then announce it and give back what has not begun, until that
        succeeds, and kill what still runs when the time is up. Ends when the pool is down."""
        self.stops.wait()
        within_seconds = max(0.0, self._kill_at - time.monotonic())
        log.info(
            "Worker shutting down gracefully",
            worker=self.name,
            reason=self._stop_reason,
            running=len(self.desk.claimed),
            within_seconds=round(within_seconds) if math.isfinite(within_seconds) else None,
        )
        is_announced, announce_at = False, 0.0
        while True:
            if not is_announced and time.monotonic() >= announce_at:
                is_announced = self._try(self._announce, "could not announce the drain")
                announce_at = time.monotonic() + ANNOUNCE_SECONDS
            elif self.desk.ready or self.claimer.answers:  # claims that were granted since
                self._try(self._give_back, NOT_GIVEN_BACK)
            if self._pool_is_down.wait(LOOK_SECONDS):
                return
            self._try(self._kill_when_due, "could not kill what runs")

    def _try(self, step: Callable[[], object], problem: str) -> bool:
        """Take a step on a thread of its own, whatever goes wrong; returns False if it failed."""
        try:
            step()
        except Exception:
            log.exception(problem)
            return False
        finally:
            connections.close_all()
        return True

    def _announce(self) -> None:
        """Say that this worker stops, and give back what has not begun."""
        fleet.drain(
            worker_id=self.worker_id,
            incarnation=self.incarnation,
            reason=self._stop_reason,
            now=clock.now(),
        )
        self._give_back()

    def _kill_when_due(self) -> None:
        """Kill what runs, if the time to stop is up."""
        late_seconds = time.monotonic() - self._kill_at
        if late_seconds >= 0 and (running := list(self.desk.claimed.values())):
            if not all(attempt.is_stopped for attempt in running):
                log.warning("time to stop is up: killing what runs", n=len(running))
            for attempt in running:
                attempt.is_stopped = True
            # again: an action that just got its slot may have its process only now
            self._kill_all()
        if late_seconds > UNSTOPPABLE_SECONDS and self.pool_kind != "prefork":
            self._go_with_stuck_threads()

    def _go_with_stuck_threads(self) -> None:
        """Leave, and end this process with the threads that cannot be ended otherwise."""
        self._goes_with_threads = True
        stuck = list(self.desk.claimed.values())
        log.error("a thread that cannot be stopped ends with its process", n=len(stuck))
        try:
            self._settle()
            publisher.flush()
            self._put_away()
            # last, as they may start elsewhere from then on; and together with the sign-off, as
            # whatever a worker holds that has left counts as lost
            with transaction.atomic():
                ends = [attempt.stopped() for attempt in stuck]
                executions.finish(ends, now=clock.now(), actor=self.name)
                self._sign_off()
        except Exception:
            log.exception("could not record stopped attempts; the heartbeat check will end them")
        os._exit(os.EX_OK)

    def _kill_all(self) -> None:
        for attempt in list(self.desk.claimed.values()):
            self.canceller.kill(attempt)
        processes.kill_all(os.environ[processes.WORKER_TOKEN])

    def _give_back(self) -> None:
        """Give back what was dispatched to this worker or claimed by it, and has not started."""
        with self._giving_back:
            unstarted = self.desk.take_back(older_than_seconds=0)
            if self._pool_is_down.is_set():
                unstarted += self.desk.take_unbegun()
            keys = [execution.key for execution in unstarted]
            # the loop that would have taken them may have ended
            for answer in self.claimer.take_answers():
                unstarted += answer.granted or ()
                keys += [attempt.key for attempt in answer.batch]
            if given_back := self._hand_over(unstarted, keys, worker_id=self.worker_id):
                log.info("unstarted work given back", worker=self.name, n=len(given_back))

    def _hand_over(
        self, unstarted: list[Execution], keys: list[AttemptKey], **how: Any
    ) -> set[UUID]:
        """Give back what has not begun. If that cannot be written now, or another transaction holds
        a row, the attempt is no longer in hand, and the audit gives it back two heartbeats
        later."""
        try:
            return executions.give_back(
                unstarted=unstarted, now=clock.now(), actor=self.name, **how
            )
        finally:
            self.desk.in_hand.let_go(keys)

    def give_back_paused(self, paused: list[Execution]) -> None:
        """Give back what was claimed and belongs to a paused queue. From the loop, which must not
        wait for the database."""
        self._begin_to_give_back(paused, Reason.QUEUE_PAUSED)

    def give_back_late(self, late: list[Execution]) -> None:
        """Give back what was claimed long ago and has not begun. From the loop, too."""
        self._begin_to_give_back(late, Reason.GIVEN_BACK)

    def _begin_to_give_back(self, late: list[Execution], reason: Reason) -> None:
        """Give back what was claimed and got no slot."""
        keys = [execution.key for execution in late]
        give_back = partial(self._hand_over, late, keys, reason=reason)
        if self.is_stopping:  # who signs off waits for the pool, and for no thread
            self._try(give_back, NOT_GIVEN_BACK)
            return
        try:
            threading.Thread(
                target=self._try, args=(give_back, NOT_GIVEN_BACK), daemon=True
            ).start()
        except RuntimeError:  # no thread can be started
            log.exception(NOT_GIVEN_BACK)
            self.desk.in_hand.let_go(keys)

    def leave(self) -> None:
        """Record the last ends after the pool is down, then sign off. Heartbeats go on until
        then."""
        if self._goes_with_threads:
            threading.Event().wait()  # the last of them may end now: the process ends all the same
        if not self.incarnation or self._pool_is_down.is_set():
            return
        try:
            self._wait_for_lost()
            self._settle()
            self._sign_off()
            # an executor may have chosen this worker just before it learned of the drain
            self._give_back()
            publisher.flush()
        except DatabaseError:
            log.exception("could not sign off; the staleness check will notice")
        self._put_away()
        log.info("Worker shutdown complete", worker=self.name)

    def _wait_for_lost(self) -> None:
        """Wait until what killed pool children left behind is ended: see `Attempt.on_lost`."""
        until = time.monotonic() + LOST_SECONDS
        while any(attempt.is_lost for attempt in list(self.desk.claimed.values())):
            if time.monotonic() > until:
                log.error("what lost actions left behind has not ended")
                break
            time.sleep(LOOK_SECONDS)

    def _settle(self) -> None:
        """Record the last ends, give back the rest, and stop the heartbeat."""
        self._pool_is_down.set()
        self.finisher.flush(settings.MUSTER.shutdown_timeout_seconds)
        self.claimer.flush(settings.MUSTER.publish_timeout_seconds)
        # a claim may have been granted after the end of the loop that would have started it; it
        # goes back first: on a worker that is gone, it would count as lost
        self._give_back()
        self.heartbeat.stop()
        self.heartbeat.audit.settle(now=clock.now())

    def _sign_off(self) -> None:
        fleet.leave(
            worker_id=self.worker_id,
            incarnation=self.incarnation,
            reason="stopped",
            now=clock.now(),
        )

    def _put_away(self) -> None:
        """Remove what watches this process from outside, and what waits for its work."""
        warm_process.end_all()
        self.heartbeat.sentinel.dismiss()
        if self.heartbeat.sign is not None:
            self.heartbeat.sign.remove()


def _loop_tick_seconds() -> float:
    """The interval of the loop's ticks: several in any staleness window."""
    tick_seconds: float = settings.MUSTER.staleness_seconds / 8
    return min(LONGEST_LOOP_TICK_SECONDS, tick_seconds)


def _declare(worker_id: int) -> None:
    """Declare the dead letter exchange and queue, and this worker's queues. Raises SystemExit if
    the broker has one of them with other arguments."""
    while True:
        try:
            with publisher.connection() as link:
                declarations.declare(link, topology.worker_queues(worker_id))
                with contextlib.suppress(AccessRefused):  # they are not of its user
                    topology.unbind_former(link.default_channel, worker_id)
            return
        except declarations.TopologyDiffers as differs:
            raise SystemExit(str(differs)) from None
        except (AccessRefused, NotFound) as error:
            log.warning("waiting for an executor to declare what is missing", error=repr(error))
            time.sleep(1)
        except publisher.errors() as error:
            log.warning("broker not reachable, trying again", error=brokers.explain(error))
            time.sleep(1)


def _version() -> str:
    return metadata.version("celery")
