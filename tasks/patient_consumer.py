"""The consumer of our Celery processes, which serves its pool while the broker is away.

Celery's own stops its event loop while it waits for the broker: nobody reads the reports of pool
children, so an ended action does not count as ended, and nobody starts claimed attempts. Here the
loop goes on between two attempts to connect, which also come sooner.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from inspect import isgenerator
from typing import Any, ClassVar

import structlog
from amqp.exceptions import NotFound, PreconditionFailed
from celery.exceptions import WorkerShutdown
from celery.worker.consumer import Consumer as CeleryConsumer
from celery.worker.loops import asynloop
from celery.worker.state import maybe_shutdown
from kombu.asynchronous import ERR, READ, WRITE
from kombu.asynchronous.hub import Hub
from kombu.exceptions import OperationalError

from orchestrator.core import brokers, declarations, topology

log = structlog.get_logger(__name__)

EXIT_REFUSED = 1
"""Exit status of a process that stops because the broker has other queues: the same as of one that
could not start."""

FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 2.0
CHANGED_MEANWHILE = "changed size during iteration"
"""The message of Python when a set that is walked through grows or shrinks."""
HALF_DONE_SECONDS = 5.0
"""The longest wait for a pool child that stopped in the middle of a message to us."""


class Consumer(CeleryConsumer):
    """Celery's consumer, with another way to wait for the broker."""

    class Blueprint(CeleryConsumer.Blueprint):  # type: ignore[misc,valid-type]
        # Beside quorum queues Celery would make 28 queues for tasks with an `eta`, of which we send
        # none, and stop its loop while a node of the cluster is down.
        default_steps: ClassVar = [
            step for step in CeleryConsumer.Blueprint.default_steps if "DelayedDelivery" not in step
        ]

    hub: Any
    controller: Any
    amqheartbeat: Any
    app: Any
    qos: Any
    connection_errors: tuple[type[Exception], ...]

    def __init__(self, on_task_request: Any, **options: Any) -> None:
        worker_options = options.get("worker_options") or {}
        alone = {
            # both believe any message: gossip may elect, and call, what one says
            "without_gossip": True,
            "without_mingle": True,
            # a message every two seconds, and an exchange, for those who watch events
            "without_heartbeat": not options["task_events"],
        }
        options["worker_options"] = {**worker_options, **alone}
        self._pause_seconds = 0.0
        """Before the next attempt to connect."""
        super().__init__(on_task_request, **options)

    def connect(self) -> Any:
        with self._pool_served():
            pause_seconds, self._pause_seconds = self._pause_seconds, 0.0
            if pause_seconds:
                self._wait(pause_seconds)
            connection = self.connection_for_read(heartbeat=self.amqheartbeat)
            self._declare_common(connection)
        if self.hub is not None:
            connection.transport.register_with_event_loop(connection.connection, self.hub)
        return connection

    def _declare_common(self, connection: Any) -> None:
        """Declare the exchanges: Celery declares our queues without them, see `QueueSpec.queue`."""
        try:
            declarations.declare_on(connection)
        except PreconditionFailed as refused:
            self._refuse_to_run(refused)
            raise

    def ensure_connected(self, connection: Any) -> Any:
        """Try to connect until it succeeds, with pauses of 0.2, 0.4 ... 2 s."""
        errors: tuple[type[Exception], ...] = (OperationalError, *self.connection_errors)
        pause_seconds = FIRST_PAUSE_SECONDS
        while True:
            try:
                connection.ensure_connection(max_retries=0)
            except errors as error:
                log.warning(
                    "broker not reachable, trying again",
                    broker=connection.as_uri(),
                    error=brokers.explain(error),
                    again_in_seconds=pause_seconds,
                )
                connection.maybe_switch_next()
                self._wait(pause_seconds)
                pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)
            else:
                self.first_connection_attempt = False
                return connection

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Connect again, unless the broker refuses our queues: that would only repeat."""
        if isinstance(exc, PreconditionFailed):
            self._refuse_to_run(exc)
        if isinstance(exc, NotFound) and declarations.is_away(exc):
            self._pause_seconds = LONGEST_PAUSE_SECONDS  # the broker answers, and refuses at once
        super().on_connection_error_after_connected(exc)

    def _refuse_to_run(self, refused: PreconditionFailed) -> None:
        names = self.app.amqp.queues.consume_from
        try:
            with brokers.connection() as link:
                declarations.declare(link, filter(None, map(topology.find, names)))
        except declarations.TopologyDiffers as differs:
            log.critical("stopped: the broker has other queues", differs=str(differs))
            raise WorkerShutdown(EXIT_REFUSED) from refused
        except brokers.errors():
            log.warning("a queue was refused", error=str(refused.reply_text))

    def on_ready(self) -> None:
        """Log what is consumed, also after the broker was away."""
        super().on_ready()
        for queue in self.app.amqp.queues.consume_from:
            log.info("Consumer started", queue=queue, prefetch=self.qos.value)

    def loop(self, *arguments: Any) -> None:
        """Run Celery's event loop; when it breaks, half-read messages of pool children are kept."""
        hub = self.hub
        hub.reset = lambda: _reset(hub)
        asynloop(*arguments)

    def on_close(self) -> None:
        """Keep what the pool has not started: Celery would drop it and wait for its message to come
        again, but ours are claimed and acknowledged."""
        if self.pool is not None:
            self.pool.flush = None
        while True:
            try:
                super().on_close()
            except RuntimeError as error:
                # it walks through sets of requests, which threads of the pool change meanwhile
                if CHANGED_MEANWHILE not in str(error):
                    raise
            else:
                return

    # --- while there is no connection ---

    @contextlib.contextmanager
    def _pool_served(self) -> Iterator[None]:
        """Have the event loop serve the pool, and nothing else, inside of the context."""
        hub = self.hub
        if hub is None:
            yield
            return
        timers = _timers(hub)
        half_done = _half_done(hub)
        self.controller.register_with_event_loop(hub)
        mine = _timers(hub) - timers
        _restore(hub, half_done)
        try:
            yield
            # a pool registered again with the connection would start to read in the middle of a
            # message
            until = time.monotonic() + HALF_DONE_SECONDS
            while _half_done(hub) and time.monotonic() < until:
                self._turn(0.05)
        finally:
            for timer in mine:
                timer.cancel()
            # timers that the pool has set meanwhile, such as time limits, outlive this connection
            self.timer_entries_before_start = _timers(hub)

    def _wait(self, seconds: float) -> None:
        if self.hub is None or self.connection is not None:
            maybe_shutdown()
            time.sleep(seconds)
        else:
            self._turn(seconds)

    def _turn(self, seconds: float) -> None:
        """Let the event loop turn for this long."""
        until = time.monotonic() + seconds
        # without a timer, the loop would wait until something happens
        self.hub.call_later(seconds, bool)
        loop = self.hub.create_loop()
        while time.monotonic() < until:
            maybe_shutdown()
            try:
                next(loop)
            except StopIteration:
                loop = self.hub.create_loop()


def _timers(hub: Any) -> set[Any]:
    return {scheduled.entry for scheduled in hub.timer.queue}


HalfDone = list[tuple[int, int, Any, tuple[Any, ...]]]


def _half_done(hub: Any) -> HalfDone:
    """Find the unfinished messages from and to pool children: their generators, by descriptor."""
    unfinished = []
    for flags, registered in ((READ | ERR, hub.readers), (WRITE, hub.writers)):
        for descriptor, entry in registered.items():
            if entry is not None and isgenerator(entry[0]):
                unfinished.append((descriptor, flags, *entry))
    return unfinished


def _restore(hub: Any, half_done: HalfDone) -> None:
    for descriptor, flags, callback, arguments in half_done:
        with contextlib.suppress(OSError, ValueError):  # the child died, and its pipe was closed
            hub.add(descriptor, callback, flags, arguments)


def _reset(hub: Any) -> None:
    """Forget the broken connection, but keep half-read messages."""
    half_done = _half_done(hub)
    Hub.reset(hub)
    _restore(hub, half_done)
