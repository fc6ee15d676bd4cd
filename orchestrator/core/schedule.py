"""Beat's schedule: a row for each maintenance function, which the admin shows.

An operator may change a row or disable it, and the watchdogs follow that, too; `migrate` creates a
missing row again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, NamedTuple

from django.conf import settings
from django.db import connections

from orchestrator.core import frame
from orchestrator.core.frame import Maintenance

INSTALLED = "installed_seconds"
"""The argument in a row that has the interval with which it was made. The functions ignore it."""


class Plan(NamedTuple):
    """How often a function is to run."""

    seconds: float
    is_paused: bool = False
    is_watched: bool = True
    """False: beat alone knows when, such as by a crontab, and no watchdog takes over."""


def plans(functions: Iterable[Maintenance]) -> dict[str, Plan]:
    """The plans of these functions by name, in one query: each has its setting's interval, unless
    an operator has changed its row."""
    from django_celery_beat.models import PeriodicTask

    standard = {each.name: Plan(getattr(settings.MUSTER, each.interval)) for each in functions}
    columns = ("enabled", "interval__every", "interval__period", "kwargs")
    rows = PeriodicTask.objects.filter(name__in=standard).values_list("name", *columns)
    return standard | {name: _plan(standard[name], *row) for name, *row in rows}


def _plan(standard: Plan, is_enabled: bool, every: int | None, period: str, arguments: str) -> Plan:
    if not is_enabled:
        return standard._replace(is_paused=True)
    if every is None:
        return standard._replace(is_watched=False)
    seconds = timedelta(**{period: every}).total_seconds()
    return standard if seconds == _installed_seconds(arguments) else Plan(seconds)


def _installed_seconds(arguments: str) -> Any:
    try:
        return json.loads(arguments).get(INSTALLED)
    except (ValueError, AttributeError):  # an operator has written something else there
        return None


def install(*, using: str, **_: Any) -> None:
    """Add the missing rows after migrations."""
    from django_celery_beat.models import IntervalSchedule, PeriodicTask

    if PeriodicTask._meta.db_table not in connections[using].introspection.table_names():
        return  # beat's own migrations are still to come
    tasks = PeriodicTask.objects.using(using)
    known = set(tasks.values_list("name", flat=True))
    for maintenance in frame.collect(lambda app: app.maintenance):
        if maintenance.name in known:
            continue
        seconds = getattr(settings.MUSTER, maintenance.interval)
        every = max(1, round(seconds))
        interval, _ = IntervalSchedule.objects.using(using).get_or_create(
            every=every, period=IntervalSchedule.SECONDS
        )
        tasks.create(
            name=maintenance.name,
            task=maintenance.name,
            interval=interval,
            kwargs=json.dumps({INSTALLED: every}),
            description=maintenance.description,
        )
