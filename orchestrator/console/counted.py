"""The numbers on the strip of every page, counted in one statement. Names are read of what there
is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import CharField, Count, Max, Min, Q, QuerySet, Value
from django_celery_beat.models import PeriodicTask

from orchestrator.console import expiring
from orchestrator.console.look import Look, for_everywhere
from orchestrator.core import alarms, maintenance
from orchestrator.core.models import DLQEntry, Execution, Tick, Worker
from orchestrator.core.models.fleet import WorkerQuerySet

MOST = 1_000
"""More are not counted."""
LOST_WITHIN = timedelta(hours=1)
LOST = "heartbeat stale"
"""`Worker.status_reason` of one that was declared lost."""
PERMISSIONS = ("metrics.read", "workers.read", "executions.read", "dlq.read", "inquiries.read")

TICKS, NOTED, PAUSED = "ticks", "noted", "paused"
ELIGIBLE, UNWELL = "eligible", "unwell"
OVERDUE, PENDING, EXPIRING = "overdue", "pending", "expiring"


class Counted(NamedTuple):
    """The number of some rows, and the earliest of their times; the latest of what beat has
    noted."""

    number: int
    at: datetime | None


NONE = Counted(0, None)


def read(look: Look) -> dict[str, Counted]:
    """The numbers of what there is, of what the user may know; read once for all who may know the
    same of it."""
    allowed = [each for each in PERMISSIONS if look.may(each)]
    if not allowed:
        return {}
    name = f"counted.{'+'.join(allowed)}"
    return for_everywhere(look, allowed, name, lambda: _read(look, allowed))


def unwell(look: Look) -> WorkerQuerySet:
    """Workers that are silent, were lost not long ago, or fail a check of their machine."""
    workers = Worker.objects.visible_to(look.user).known()
    lost = Q(gone_at__gt=look.now - LOST_WITHIN, status_reason=LOST)
    return workers.stale(look.now) | workers.filter(lost) | workers.up().exclude(failed_checks={})


def _read(look: Look, allowed: list[str]) -> dict[str, Counted]:
    first, *others = (rows for needs, rows in _counts(look) if needs in allowed)
    return {name: Counted(number, at) for name, number, at in first.union(*others, all=True)}


def _counts(look: Look) -> Iterator[tuple[str, QuerySet[Any]]]:
    """Each with the permission that it needs."""
    user, now = look.user, look.now
    executions = Execution.objects.visible_to(user).open().filter(deadline_at__lte=now)
    eligible = Worker.objects.visible_to(user).eligible(now)
    ticks = Tick.objects.filter(name=alarms.EXECUTORS_SIGN)
    paused = PeriodicTask.objects.filter(enabled=False, name__in=maintenance.functions())
    sent = PeriodicTask.objects.filter(enabled=True)
    yield "metrics.read", _count(TICKS, ticks, "ran_at")
    yield "metrics.read", _columns(NOTED, sent, Max("last_run_at"))
    yield "metrics.read", _count(PAUSED, paused, "date_changed")
    yield "workers.read", _count(ELIGIBLE, eligible, "heartbeat_at", most=1)
    yield "workers.read", _count(UNWELL, unwell(look), "heartbeat_at")
    yield "executions.read", _count(OVERDUE, executions, "deadline_at")
    yield "dlq.read", _count(PENDING, DLQEntry.objects.visible_to(user).pending(), "dlq_timestamp")
    yield "inquiries.read", _count(EXPIRING, expiring.rows(now), "expires_at")


def _count(name: str, rows: QuerySet[Any], at: str, *, most: int = MOST) -> QuerySet[Any]:
    some = rows.model.objects.filter(pk__in=rows.order_by().values("pk")[:most])
    return _columns(name, some, Min(at))


def _columns(name: str, rows: QuerySet[Any], at: Min | Max) -> QuerySet[Any]:
    named: QuerySet[Any] = rows.order_by().values(what=Value(name, CharField()))
    found: QuerySet[Any] = named.annotate(number=Count("pk"), first=at)
    return found.values_list("what", "number", "first")
