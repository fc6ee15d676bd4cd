"""Beat's schedule: a row for each maintenance function, which the admin shows.

An operator may change a row or disable it, and the watchdogs follow that, too. A row whose interval
nobody has changed follows its setting; `migrate` and beat's start create a missing row again. The
schedule may have rows of an operator's own, which only beat sends.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from django.conf import settings
from django.db import connections, transaction

from orchestrator.core import frame
from orchestrator.core.errors import NotFound
from orchestrator.core.frame import Maintenance

if TYPE_CHECKING:
    from django_celery_beat.models import IntervalSchedule, PeriodicTask

INSTALLED = "installed_seconds"
"""The argument in a row that has the interval of its setting, as it was when the row got it: a row
with another one was changed by an operator. The functions ignore it."""


LONGEST = timedelta(days=366)
"""A longer interval counts as this one: it would lead beyond what a calendar has."""


class UnknownPeriodicTask(NotFound):
    """The schedule has no row of this name."""


class Plan(NamedTuple):
    """The plan that says how often a function is to run."""

    seconds: float
    is_paused: bool = False
    is_watched: bool = True
    """False: beat alone knows when, such as by a crontab, and no watchdog takes over."""


def interval(every: int, period: str) -> timedelta:
    """So many of this period of django-celery-beat's, such as `days`; at most `LONGEST`."""
    one = timedelta(**{period: 1})
    return one * min(every, LONGEST // one)


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
    if _is_as_installed(every, period, arguments):
        return standard
    return Plan(interval(every, period).total_seconds())


def _is_as_installed(every: int, period: str, arguments: str) -> bool:
    return bool(interval(every, period).total_seconds() == _installed_seconds(arguments))


def _installed_seconds(arguments: str) -> Any:
    try:
        return json.loads(arguments).get(INSTALLED)
    except (ValueError, AttributeError):  # an operator has written something else there
        return None


def install(*, using: str, **_: Any) -> None:
    """Add the missing rows, and give those that nobody has changed the interval of their setting:
    after migrations, and when beat starts."""
    from django_celery_beat.models import PeriodicTask

    if PeriodicTask._meta.db_table not in connections[using].introspection.table_names():
        return  # beat's own migrations are still to come
    rows = {row.name: row for row in PeriodicTask.objects.using(using).select_related("interval")}
    for maintenance in frame.collect(lambda app: app.maintenance):
        every = max(1, round(getattr(settings.MUSTER, maintenance.interval)))
        name, description = maintenance.name, maintenance.description
        row = rows.get(name) or PeriodicTask(name=name, task=name, description=description)
        if row.pk is None or _is_to_follow(row, every):
            row.interval = _every(every, using=using)
            row.kwargs = json.dumps(json.loads(row.kwargs) | {INSTALLED: every})
            row.save(using=using)  # tells beat that the schedule changed


def _is_to_follow(row: PeriodicTask, seconds: int) -> bool:
    """True if the row has the interval of its setting, and the setting has another one now."""
    if row.interval is None or seconds == _installed_seconds(row.kwargs):
        return False
    return _is_as_installed(row.interval.every, row.interval.period, row.kwargs)


def _every(seconds: int, *, using: str) -> IntervalSchedule:
    """The row of this interval: operators may have made several that are equal."""
    from django_celery_beat.models import IntervalSchedule

    rows, wanted = IntervalSchedule.objects.using(using), {"every": seconds, "period": "seconds"}
    return rows.filter(**wanted).first() or rows.create(**wanted)


# --- by operators --------------------------------------------------------------------------------


@transaction.atomic
def switch(name: str, *, is_on: bool) -> PeriodicTask:
    """Pause a row of the schedule, or have it go on: beat follows within seconds, and so do the
    watchdogs of what is maintenance. Raises UnknownPeriodicTask."""
    from django_celery_beat.models import PeriodicTask

    row = PeriodicTask.objects.select_for_update(of=("self",)).filter(name=name).first()
    if row is None:
        raise UnknownPeriodicTask(f"The schedule has no row called {name!r:.200}")
    if row.enabled != is_on:
        row.enabled = is_on
        row.save()  # tells beat that the schedule changed
    return row


def next_times(
    row: PeriodicTask, number: int, *, last: datetime | None, now: datetime
) -> list[datetime]:
    """The next moments at which a row is due, as far as they can be known: none if it is paused, or
    goes by the sun. `last`: when it was last due; one that is overdue is due now."""
    if not row.enabled:
        return []
    since = max(row.start_time or now, now)
    times = list(islice(_times(row, last, since), number))
    return times if row.expires is None else [each for each in times if each < row.expires]


def _times(row: PeriodicTask, last: datetime | None, now: datetime) -> Iterator[datetime]:
    if row.clocked is not None:
        if row.clocked.clocked_time > now:
            yield row.clocked.clocked_time
    elif row.interval is not None:
        every = interval(row.interval.every, row.interval.period)
        due = now if last is None else max(last + every, now)
        while True:
            yield due
            due += every
    elif row.crontab is not None:
        timing, due = row.crontab.schedule, now
        while True:
            begun, left, _ = timing.remaining_delta(due)
            due = begun + left
            yield due
