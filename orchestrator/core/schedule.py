"""Beat's schedule: a row for each maintenance function, which the admin shows.

An operator may change a row or disable it; `migrate` creates a missing row again.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import connections

from orchestrator.core import frame


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
        interval, _ = IntervalSchedule.objects.using(using).get_or_create(
            every=max(1, round(seconds)), period=IntervalSchedule.SECONDS
        )
        tasks.create(
            name=maintenance.name,
            task=maintenance.name,
            interval=interval,
            description=maintenance.description,
        )
