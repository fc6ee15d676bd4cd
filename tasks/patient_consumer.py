"""The consumer of each of our Celery processes: it serves its pool while the broker is away.

Celery's own waits for the broker with its event loop at rest: nobody reads what pool children
report, so an action that has ended does not count as ended, and nobody starts what was claimed.
Here the loop goes on between two attempts to connect, which also come sooner.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from inspect import isgenerator
from typing import Any

import structlog
from amqp.exceptions import PreconditionFailed
from celery.exceptions import WorkerShutdown
from celery.worker.consumer import Consumer as CeleryConsumer
from celery.worker.loops import asynloop
from celery.worker.state import maybe_shutdown
from kombu.asynchronous import ERR, READ, WRITE
from kombu.asynchronous.hub import Hub
from kombu.exceptions import OperationalError

from orchestrator.core import declarations, publisher, topology

log = structlog.get_logger(__name__)

EXIT_REFUSED = 1
"""Exit status of a process that consumes nothing because the broker has other queues: the same as
of one that could not start."""

FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 2.0
HALF_DONE_SECONDS = 5.0
"""Longest wait for a pool child that stopped in the middle of a message to us."""


class Consumer(CeleryConsumer):
    """Celery's, with another way to wait for the broker."""

    hub: Any
    controller: Any
    amqheartbeat: Any
    app: Any
    connection_errors: tuple[type[Exception], ...]

    def connect(self) -> Any:
        with self._pool_served():
            connection = self.connection_for_read(heartbeat=self.amqheartbeat)
        if self.hub is not None:
            connection.transport.register_with_event_loop(connection.connection, self.hub)
        return connection

    def ensure_connected(self, connection: Any) -> Any:
        """Try until it stands: 0.2, 0.4 ... 2 s between two attempts."""
        errors: tuple[type[Exception], ...] = (OperationalError, *self.connection_errors)
        pause_seconds = FIRST_PAUSE_SECONDS
        while True:
            try:
                connection.ensure_connection(max_retries=0)
            except errors as error:
                log.warning(
                    "broker not reachable, trying again",
                    broker=connection.as_uri(),
                    error=repr(error),
                    again_in_seconds=pause_seconds,
                )
                connection.maybe_switch_next()
                self._wait(pause_seconds)
                pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)
            else:
                self.first_connection_attempt = False
                return connection

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Connect again, unless the broker refuses our queues: that would only come again."""
        if isinstance(exc, PreconditionFailed):
            self._refuse_to_run(exc)
        super().on_connection_error_after_connected(exc)

    def _refuse_to_run(self, refused: PreconditionFailed) -> None:
        names = self.app.amqp.queues.consume_from
        try:
            with publisher.connection() as link:
                declarations.declare(link, filter(None, map(topology.find, names)))
        except declarations.TopologyDiffers as differs:
            log.critical("stopped: the broker has other queues", differs=str(differs))
            raise WorkerShutdown(EXIT_REFUSED) from refused
        except publisher.errors():
            log.warning("a queue was refused", error=str(refused.reply_text))

    def loop(self, *arguments: Any) -> None:
        """Celery's event loop; when it breaks, what a pool child has half told is kept."""
        hub = self.hub
        hub.reset = lambda: _reset(hub)
        asynloop(*arguments)

    def on_close(self) -> None:
        """Celery would drop what the pool has not begun, and wait for its broker to send it again:
        of ours it was claimed and acknowledged."""
        if self.pool is not None:
            self.pool.flush = None
        super().on_close()

    # --- while there is no connection ---

    @contextlib.contextmanager
    def _pool_served(self) -> Iterator[None]:
        """Inside, the event loop has the pool and nothing else."""
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
            # what is registered again with the connection would begin in the middle of a message
            until = time.monotonic() + HALF_DONE_SECONDS
            while _half_done(hub) and time.monotonic() < until:
                self._turn(0.05)
        finally:
            for timer in mine:
                timer.cancel()
            # what the pool has set meanwhile, such as time limits, outlives this connection
            self.timer_entries_before_start = _timers(hub)

    def _wait(self, seconds: float) -> None:
        if self.hub is None or self.connection is not None:
            maybe_shutdown()
            time.sleep(seconds)
        else:
            self._turn(seconds)

    def _turn(self, seconds: float) -> None:
        """Let the event loop turn for so long."""
        until = time.monotonic() + seconds
        # without it, the loop would wait for as long as nothing happens
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
    """Messages from and to pool children that are under way: their generators, by descriptor."""
    found = []
    for flags, registered in ((READ | ERR, hub.readers), (WRITE, hub.writers)):
        for descriptor, entry in registered.items():
            if entry is not None and isgenerator(entry[0]):
                found.append((descriptor, flags, *entry))
    return found


def _restore(hub: Any, half_done: HalfDone) -> None:
    for descriptor, flags, callback, arguments in half_done:
        with contextlib.suppress(OSError, ValueError):  # the child died, and its pipe was closed
            hub.add(descriptor, callback, flags, arguments)


def _reset(hub: Any) -> None:
    """Forget the broken connection, but not what is half told."""
    half_done = _half_done(hub)
    Hub.reset(hub)
    _restore(hub, half_done)
