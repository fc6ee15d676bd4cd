"""The watchdog: runs maintenance functions if beat's tick has not come for an interval and a half.

It works directly on the database, without messages: the promise must hold with beat dead and with
the broker down.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from math import inf
from typing import Any

from celery import bootsteps
from django.conf import settings
from django.db import close_old_connections, connections

from orchestrator.core import clock, maintenance, outages, presence, topology
from orchestrator.core.schedule import Plan
from tasks import stalls

log = outages.get_logger(__name__)

MISSED_TICKS = 1.5
"""Beat's tick may be half an interval late. Together with the shortest pause between two looks this
limits the delay of a due function: 8.1 s at the default interval of 5 s."""

SHORTEST_PAUSE, LONGEST_PAUSE = 1 / 8, 1 / 4
"""Between two looks, in intervals. The longest is for clocks that are set, and for operators."""


class Watchdog(threading.Thread):
    """Runs these functions one after another, each when it is missed."""

    def __init__(self, names: Collection[str]) -> None:
        super().__init__(name="muster-watchdog", daemon=True)
        self.names = names
        self.stopping = threading.Event()
        self.missing: dict[str, float] = {}
        """The functions that beat does not run, and when we ran each last, by `time.monotonic`."""

    def run(self) -> None:
        interval_seconds = settings.MUSTER.maintenance_interval_seconds
        shortest, longest = SHORTEST_PAUSE * interval_seconds, LONGEST_PAUSE * interval_seconds
        pause_seconds = shortest
        while not self.stopping.wait(pause_seconds):
            pause_seconds = max(shortest, min(longest, self.look()))
            close_old_connections()
        connections.close_all()

    def look(self) -> float:
        """Run what is missed now; returns the seconds until something else may be."""
        try:
            plans = maintenance.plans(self.names)
            missed_in = maintenance.missed_in(plans, now=clock.asked_now(), intervals=MISSED_TICKS)
        except Exception:
            log.exception("cannot read the schedule, trying again later")
            close_old_connections()
            return 0.0
        for name, plan in plans.items():
            if missed_in.get(name) == 0 and self._run(name, plan):
                complain = log.debug if name in self.missing else log.warning
                complain("beat's tick is missing, the watchdog ran it", task=name)
                self.missing[name] = time.monotonic()
            elif self._is_run_by_others(name, plan):
                self.missing.pop(name)
        return min((seconds for seconds in missed_in.values() if seconds), default=inf)

    def _run(self, name: str, plan: Plan) -> bool:
        """Run this function; returns False if somebody else was faster, or it failed."""
        try:
            now = clock.asked_now()
            return maintenance.run(name, now=now, missed=MISSED_TICKS, plan=plan) is not None
        except Exception:
            # one function that fails (the drain, with the broker down) must not stop the others
            log.exception("maintenance failed, trying again later", task=name)
            close_old_connections()
            return False

    def _is_run_by_others(self, name: str, plan: Plan) -> bool:
        """Return True if it is not due although we have not run it for long: somebody else runs
        it."""
        too_long = 2 * plan.seconds
        return name in self.missing and time.monotonic() - self.missing[name] > too_long


class WatchdogStep(bootsteps.StartStopStep):
    """Says that this executor lives, and runs two watchdogs in it: slow functions may take as long
    as the broker's time limits, or as locks that each of their steps waits for, and the others must
    not wait for that."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        self.watchdogs: list[Watchdog] = []
        self.presence: presence.Presence | None = None
        super().__init__(worker, **kwargs)

    def include_if(self, worker: Any) -> bool:
        return topology.maintenance_queue().name in worker.app.amqp.queues.consume_from

    def start(self, worker: Any) -> None:
        functions = maintenance.functions().values()
        self.watchdogs = [
            Watchdog([each.name for each in functions if each.is_slow is slow])
            for slow in (False, True)
        ]
        for watchdog in self.watchdogs:
            watchdog.start()
        self.presence = presence.begin(
            "executor",
            worker.hostname.partition("@")[0],
            trouble=lambda: stalls.trouble(getattr(worker, "muster_watched", ())),
        )

    def stop(self, worker: Any) -> None:
        if self.presence is not None:
            self.presence.stop()
        for watchdog in self.watchdogs:
            watchdog.stopping.set()
        for watchdog in self.watchdogs:
            watchdog.join(timeout=10)
        self.watchdogs = []

    def terminate(self, worker: Any) -> None:
        self.stop(worker)
