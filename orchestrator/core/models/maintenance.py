"""When each maintenance function last ran, over all processes."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import OperationalError, models
from django.db.models import Q

from orchestrator.core.database import LOCK_NOT_AVAILABLE, sqlstate

PROCESSES_DIFFER_BY = timedelta(seconds=1)
"""Two processes that ask the same database for the time are never further apart, unless it was
set."""

CLOCK, SET_BACK = "clock", "clock set back"
"""The rows that say what the database's clock showed last, and when it was found to be set back."""


class TickQuerySet(models.QuerySet["Tick"]):
    def claim(
        self, *, name: str, now: datetime, not_within: timedelta, at_once: bool = True
    ) -> bool:
        """Take the next run of `name` unless somebody ran it within `not_within`.

        Beat, a second beat and every executor's watchdog ask here; one of them gets it. What never
        ran is due `at_once`, or counts from now on. What ran in the future is due: the clock was
        set back since, and nobody is to wait until it is there again.

        A row that another session holds for longer than the database's `lock_timeout` is given to
        whoever asks: a function that runs too often does no harm, one that never runs does.
        """
        ran_long_ago = Q(ran_at__lte=now - not_within)
        runs_in_the_future = Q(ran_at__gt=now + PROCESSES_DIFFER_BY)
        due = self.filter(ran_long_ago | runs_in_the_future, name=name)
        try:
            if due.update(ran_at=now):
                return True
        except OperationalError as error:
            if sqlstate(error) != LOCK_NOT_AVAILABLE:
                raise
            return True
        _, created = self.get_or_create(name=name, defaults={"ran_at": now})
        return created and at_once

    def clock_was_set_back(self, *, now: datetime, within: timedelta) -> bool:
        """Whether the database's clock was found, so short a time ago, to show less than before:
        by whoever asked here, in whatever process."""
        clock, _ = self.get_or_create(name=CLOCK, defaults={"ran_at": now})
        if clock.ran_at > now + PROCESSES_DIFFER_BY:
            self.update_or_create(name=SET_BACK, defaults={"ran_at": now})
        self.filter(name=CLOCK).update(ran_at=now)
        return self.filter(name=SET_BACK, ran_at__range=(now - within, now)).exists()

    def of_functions(self) -> TickQuerySet:
        return self.exclude(name__in=[CLOCK, SET_BACK])


class Tick(models.Model):
    """The last run of one maintenance function; two rows are about the database's clock."""

    name = models.CharField(max_length=60, primary_key=True)
    ran_at = models.DateTimeField()

    objects = TickQuerySet.as_manager()

    def __str__(self) -> str:
        return f"{self.name} at {self.ran_at:%H:%M:%S}"
