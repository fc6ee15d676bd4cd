"""Maintenance functions that beat schedules, and the rule that makes a missed tick harmless.

Beat, a second beat and each executor's watchdog all call `run`. A tick that was taken within half
an interval is not taken again, so a function runs once an interval, regardless of the number of
callers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Any

from django.conf import settings
from django.db import transaction

from orchestrator.core import clock, database, dead_letters, executions, fleet, frame, schedule
from orchestrator.core.frame import Maintenance
from orchestrator.core.models import Tick
from orchestrator.core.schedule import Plan

Parts = dict[str, Callable[[], Any]]
"""The parts of one function; each is called even if others fail."""


def check_timeouts(*, now: datetime) -> Any:
    """End what is overdue, and move what waits for a full worker to a free slot."""
    moment = clock.Running(now)
    parts: Parts = {
        "ended": lambda: executions.sweep(now=moment()),
        "moved": lambda: executions.release_waiting(now=moment()),
        "brought_forward": partial(_bring_forward, moment),
    }
    done = database.carry_out_each(parts)
    return done.pop("ended") | done


def _bring_forward(moment: clock.Running) -> int:
    """Make due the retries that were delayed because the clock was set back.

    Repeats for a while: a process that read the clock just before may write its time later. Leaves
    it to the next tick if the clock was set since this one began, as all would seem to be of the
    future.
    """
    window = timedelta(seconds=settings.MUSTER.staleness_seconds)
    with transaction.atomic():
        database.hold_briefly()
        is_back = Tick.objects.clock_was_set_back(moment=moment, within=window)
        if not is_back or moment.was_set():
            return 0
        now = moment()
        return sum(
            bring_forward(now=now)
            for bring_forward in frame.collect(lambda app: app.when_clock_was_set_back)
        )


def check_heartbeats(*, now: datetime) -> Any:
    """Declare silent workers lost, settle what they had started, move what they had not started."""
    moment = clock.Running(now)
    parts: Parts = {
        "lost": lambda: [worker.name for worker in fleet.mark_stale(now=moment())],
        "settled": lambda: executions.settle_lost(now=moment()),
        "released": lambda: executions.release_stranded(now=moment()),
    }
    return database.carry_out_each(parts)


def drain_dead_letters(*, now: datetime) -> Any:
    """Dispatch again what its worker seems not to have received, and turn dead letters into ended
    executions and entries, unless the settings say that dead letters are left where they are."""
    parts: Parts = {
        "dispatched_again": partial(
            executions.dispatch_unclaimed, now=now, actor=executions.MONITOR
        ),
    }
    if settings.MUSTER.dead_letter_enabled:
        parts["drained"] = dead_letters.drain
    return database.carry_out_each(parts)


def retire_workers(*, now: datetime) -> Any:
    """Remove the queues of workers that are long gone."""
    return fleet.retire_gone(now=now)


@cache
def functions() -> dict[str, Maintenance]:
    """Maintenance functions of all installed apps, by name."""
    brought = frame.collect(lambda app: app.maintenance)
    return {maintenance.name: maintenance for maintenance in brought}


def plans(names: Collection[str] | None = None) -> dict[str, Plan]:
    """The plans that say how often these functions, or all of them, are to run."""
    return schedule.plans(functions()[name] for name in (names or functions()))


def missed_in(plans: Mapping[str, Plan], *, now: datetime, intervals: float) -> dict[str, float]:
    """The seconds until nobody has run a function for so many of its intervals, by name; where they
    are 0, `run` would run it now, unless somebody is faster."""
    watched = {
        name: timedelta(seconds=plan.seconds) * intervals
        for name, plan in plans.items()
        if plan.is_watched and not plan.is_paused
    }
    return Tick.objects.due_in(watched, now=now)


def run(name: str, *, now: datetime, missed: float = 0, plan: Plan | None = None) -> Any:
    """Run one function unless it ran recently; returns its result, or None when it was not due, or
    an operator has paused it in beat's schedule.

    `missed`: the number of intervals that must have passed; for the watchdog. `plan`: from `plans`
    of a moment ago, if the caller has it.
    """
    moment = clock.Running(now)
    plan = plan or plans([name])[name]
    if plan.is_paused or (missed and not plan.is_watched):
        return None
    interval = timedelta(seconds=plan.seconds)
    not_within = interval * missed if missed else interval / 2
    # beat needs a whole interval for its first run: a watchdog must not take that for a dead beat
    at_once = not missed or plan.seconds <= settings.MUSTER.maintenance_interval_seconds
    if not Tick.objects.claim(name=name, now=now, not_within=not_within, at_once=at_once):
        return None
    if moment.was_set():
        return None  # while it waited for its turn: by the clock as it is now, it is due again
    return functions()[name].function(now=moment())
