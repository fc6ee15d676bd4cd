"""Runs the maintenance functions whenever beat's tick has not come for two intervals.

Straight on the database, with no message in between: the promise must hold with beat dead and
with the broker down.
"""

from __future__ import annotations

import threading
from typing import Any

import structlog
from celery import bootsteps
from django.conf import settings
from django.db import close_old_connections, connections

from orchestrator import clock, maintenance, topology

log = structlog.get_logger(__name__)

MISSED_TICKS = 2


class Watchdog(threading.Thread):
    def __init__(self) -> None:
        super().__init__(name="muster-watchdog", daemon=True)
        self.stopping = threading.Event()
        self.missing: set[str] = set()

    def run(self) -> None:
        pause_seconds = settings.MUSTER.maintenance_interval_seconds / 4
        while not self.stopping.wait(pause_seconds):
            for name in maintenance.FUNCTIONS:
                self._run_if_missed(name)
            close_old_connections()
        connections.close_all()

    def stop(self) -> None:
        self.stopping.set()
        self.join(timeout=10)

    def _run_if_missed(self, name: str) -> None:
        try:
            if maintenance.run(name, now=clock.now(), missed=MISSED_TICKS) is not None:
                complain = log.debug if name in self.missing else log.warning
                complain("beat's tick is missing, the watchdog ran it", task=name)
                self.missing.add(name)
        except Exception:
            # one function that fails (the drain, with the broker down) must not stop the others
            log.exception("maintenance failed, trying again later", task=name)
            close_old_connections()


class WatchdogStep(bootsteps.StartStopStep):
    """Runs a watchdog in every executor."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        self.watchdog: Watchdog | None = None
        super().__init__(worker, **kwargs)

    def include_if(self, worker: Any) -> bool:
        return topology.maintenance_queue().name in worker.app.amqp.queues.consume_from

    def start(self, worker: Any) -> None:
        self.watchdog = Watchdog()
        self.watchdog.start()

    def stop(self, worker: Any) -> None:
        if self.watchdog is not None:
            self.watchdog.stop()
            self.watchdog = None

    def terminate(self, worker: Any) -> None:
        self.stop(worker)
