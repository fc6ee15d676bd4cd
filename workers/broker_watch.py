"""The worker's watch of its connection to the broker: messages for it must arrive.

Its connection must work, and its queues must exist and have a consumer each: a library may lose the
message that a consumer is cancelled while it waits for another answer. Queues that somebody has
deleted are declared again. Bindings cannot be queried, so they are declared periodically.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

from amqp.exceptions import NotFound
from django.conf import settings
from django.db import connections
from django.utils import timezone
from kombu import Connection

from orchestrator.core import brokers, declarations, fleet, outages, topology
from workers.fitness import QUEUE_CHECK

if TYPE_CHECKING:
    from workers.fitness import Fitness
    from workers.host import Host

log = outages.get_logger(__name__)

DECLARE_EVERY_SECONDS = 10.0
CHECKS = (fleet.BROKER_CHECK, QUEUE_CHECK)


class BrokerWatch(threading.Thread):
    """Looks a few times in each heartbeat interval, so that a problem is known within one."""

    def __init__(self, agent: Host, fitness: Fitness) -> None:
        super().__init__(name="muster-broker-watch", daemon=True)
        self.agent = agent
        self.fitness = fitness
        interval_seconds = settings.MUSTER.heartbeat_interval_seconds
        self.calm_seconds = max(0.5, 0.4 * interval_seconds)
        self.troubled_seconds = max(0.25, 0.1 * interval_seconds)
        self.patience_seconds = max(1.0, 0.25 * interval_seconds)
        """A connection that is lost and restored within this time is not reported."""
        self.link: Connection | None = None
        self.declare_at = 0.0
        self.troubled_at: float | None = None
        self.since = ""

    def run(self) -> None:
        while not self.agent.is_stopping:
            try:
                self.look()
            except Exception:  # of any kind: this thread must live
                log.exception("could not look at the queues of this worker, looking again")
                self._drop_link()
                connections.close_all()
            is_calm = self.troubled_at is None
            self.agent.stops.wait(self.calm_seconds if is_calm else self.troubled_seconds)
        self._drop_link()
        connections.close_all()

    def look(self) -> None:
        """Look once; report that all is well, or a problem that lasts for longer than a moment."""
        if not self.agent.admission.has_consumed:
            return  # it is still starting, which may take long on a busy machine, and gets no work
        looked_at, at = time.monotonic(), timezone.now()
        trouble = self._trouble()
        if trouble is None:
            self.troubled_at = None
            self.fitness.tell(CHECKS, {})
        elif self.troubled_at is None:
            self.troubled_at, self.since = looked_at, f"since {at:%H:%M:%S} UTC"
        elif time.monotonic() - self.troubled_at >= self.patience_seconds:
            check, what = trouble
            if check == QUEUE_CHECK:
                self.agent.loop.consume_again()
            self.fitness.tell(CHECKS, {check: f"{what} {self.since}"})

    def _trouble(self) -> tuple[str, str] | None:
        """The check that fails, and the reason; None if messages reach this worker."""
        if not self.agent.loop.is_connected:
            return fleet.BROKER_CHECK, "no connection to the broker"
        try:
            unconsumed = self._look_at_queues()
        except declarations.TopologyDiffers as differs:
            return QUEUE_CHECK, str(differs).splitlines()[0]
        except brokers.errors() as error:
            log.debug("the broker does not answer", error=repr(error))
            return fleet.BROKER_CHECK, "no answer from the broker"
        if self.agent.loop.is_paused:
            unconsumed.discard(topology.worker_queue(self.agent.worker_id).name)
        if unconsumed:
            return QUEUE_CHECK, f"{' and '.join(sorted(unconsumed))}: no consumer"
        return None

    def _look_at_queues(self) -> set[str]:
        """Declare again if it is time to; returns the queues without a consumer. Raises the errors
        of the broker's library."""
        was_connected = self.link is not None
        try:
            return self._ask()
        except brokers.errors() as error:
            self._drop_link()
            if not was_connected or isinstance(error, TimeoutError):
                raise
        return self._ask()  # the old connection was closed between two looks

    def _ask(self) -> set[str]:
        link = self._connected()
        if time.monotonic() >= self.declare_at:
            self._declare(link)
        names = [spec.name for spec in topology.worker_queues(self.agent.worker_id)]
        try:
            with declarations.throw_away(link) as channel:
                return {
                    name
                    for name in names
                    if not channel.queue_declare(name, passive=True).consumer_count
                }
        except NotFound:
            self._declare(link)
            return set(names)

    def _declare(self, link: Connection) -> None:
        declarations.declare(link, topology.worker_queues(self.agent.worker_id))
        self.declare_at = time.monotonic() + DECLARE_EVERY_SECONDS

    def _connected(self) -> Connection:
        if self.link is None:
            self.link = brokers.connection()
        brokers.ensure_connected(self.link)
        return self.link

    def _drop_link(self) -> None:
        link, self.link = self.link, None
        if link is not None:
            with contextlib.suppress(Exception):  # what is broken may fail in any way
                link.collect()
