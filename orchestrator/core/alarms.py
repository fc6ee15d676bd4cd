"""The faults of the installation now: the first thing on every page, and a warning of
`/health/ready`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Max
from django.urls import reverse
from django_celery_beat.models import PeriodicTask

from orchestrator.core import authority, maintenance, presence, reachability, words
from orchestrator.core.authority import Principal
from orchestrator.core.models import Service, Tick, Worker
from orchestrator.core.presence import Life
from orchestrator.core.schedule import Plan

Plans = Mapping[str, Plan]
"""Of maintenance functions, by name."""

EXECUTORS_SIGN = "muster.check_timeouts"
"""Every executor runs it when nobody else did."""

LATE_AFTER = 3
"""Intervals. The executors' watchdog acts after two missed ones."""

BEAT_SILENT = timedelta(minutes=5)
"""Beat writes down what it has sent every three minutes."""

NAMED_WORKERS = 5


@dataclass(frozen=True)
class Alarm:
    """One thing that is wrong, what follows from it, and what to do."""

    title: str
    detail: str
    url: str = ""


def now_wrong(
    user: Principal,
    *,
    now: datetime,
    plans: Plans | None = None,
    asking_the_broker: bool = False,
) -> list[Alarm]:
    """The alarms, the worst first; only those that the user may know. `plans`: those of all
    maintenance functions, if the caller has them."""
    wrong: list[Alarm] = []
    if authority.may(user, "metrics.read"):
        plans = maintenance.plans() if plans is None else plans
        wrong += [*executors(plans, executors_ran_at(), now), *paused(plans)]
        wrong += [*beat(beat_noted_at(), now), *troubled(of_core(now), now)]
        if asking_the_broker:
            wrong += broker()
    if authority.may(user, "workers.read"):
        wrong += workers(now, user)
    return wrong


def is_late(plan: Plan, ran_at: datetime, now: datetime) -> bool:
    """True if a maintenance function of this plan should have run since. One that an operator has
    paused, or given a time of the day, is not."""
    if plan.is_paused or not plan.is_watched:
        return False
    return now - ran_at > LATE_AFTER * timedelta(seconds=plan.seconds)


def executors_ran_at() -> datetime | None:
    """The time at which an executor, or beat, last ran the sign of executors."""
    return Tick.objects.filter(name=EXECUTORS_SIGN).values_list("ran_at", flat=True).first()


def executors(plans: Plans, ran_at: datetime | None, now: datetime) -> Iterator[Alarm]:
    follows = "Nothing is scheduled, retried or ended in time. Accepted executions wait."
    hint = "Start one: manage.py executor; manage.py up starts all services."
    if ran_at is None:
        yield Alarm("No executor has run yet", f"{follows} {hint}")
    elif is_late(plans[EXECUTORS_SIGN], ran_at, now):
        silent = words.span((now - ran_at).total_seconds())
        yield Alarm(f"No executor has worked for {silent}", f"{follows} {hint}")


def paused(plans: Plans) -> Iterator[Alarm]:
    names = [name for name, plan in plans.items() if plan.is_paused]
    if names:
        yield Alarm(
            f"Paused in the schedule: {', '.join(names)}",
            "Nobody does this work, the executors neither, until it is enabled again.",
            reverse("admin:django_celery_beat_periodictask_changelist"),
        )


def beat_noted_at() -> datetime | None:
    """The time at which beat last noted what it has sent; None if it has not."""
    enabled = PeriodicTask.objects.filter(enabled=True)
    newest: datetime | None = enabled.aggregate(at=Max("last_run_at"))["at"]
    return newest


def beat(noted_at: datetime | None, now: datetime) -> Iterator[Alarm]:
    since = now - BEAT_SILENT
    if noted_at is not None and noted_at < since and not _beat_began(since=since):
        silent = words.span((now - noted_at).total_seconds())
        yield Alarm(
            f"Beat has noted nothing for {silent}",
            "The executors do its maintenance, a little later. Periodic tasks of yours are not "
            "sent. Start it: manage.py beat.",
            reverse("admin:django_celery_beat_periodictask_changelist"),
        )


def _beat_began(*, since: datetime) -> bool:
    """True if a beat that has not ended began since then: its first note may be still to come."""
    begun = Service.objects.filter(kind=Service.Kind.BEAT, started_at__gt=since)
    return begun.filter(stopped_at=None).exists()


def services(now: datetime) -> Iterator[Alarm]:
    """That no executor works, or no beat, or one does not get on, whoever asks."""
    yield from executors(maintenance.plans([EXECUTORS_SIGN]), executors_ran_at(), now)
    yield from beat(beat_noted_at(), now)
    yield from troubled(of_core(now), now)


def of_core(now: datetime) -> list[Life]:
    """The services of the core, which are those that say what their trouble is."""
    return [Life(*row) for row in presence.of_core(now=now)]


def troubled(known: list[Life], now: datetime) -> Iterator[Alarm]:
    for life in presence.troubled(known, now):
        yield Alarm(
            f"{life.kind} {life.name} on {life.host} does not get on",
            f"{life.trouble}. Its log has more.",
        )


def broker() -> Iterator[Alarm]:
    until = time.monotonic() + reachability.PATIENCE_SECONDS
    if not reachability.yes(reachability.broker.ask(), until):
        yield Alarm(
            "The broker does not answer",
            "Executions are accepted, and wait: no worker gets work until it is back.",
        )


def workers(now: datetime, user: Principal) -> Iterator[Alarm]:
    stale = Worker.objects.visible_to(user).stale(now).order_by("name")
    names = list(stale.values_list("name", flat=True)[: NAMED_WORKERS + 1])
    if names:
        more = ", ..." if len(names) > NAMED_WORKERS else ""
        yield Alarm(
            f"Silent for too long: {', '.join(names[:NAMED_WORKERS])}{more}",
            "What such a worker has started is settled, and the rest goes to other workers.",
            reverse("admin:orchestrator_worker_changelist"),
        )
