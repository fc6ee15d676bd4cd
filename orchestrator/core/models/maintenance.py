"""The last run of each maintenance function, in any process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from django.db import OperationalError, models
from django.db.models import Q

from orchestrator.core.database import LOCK_NOT_AVAILABLE, sqlstate

PROCESSES_DIFFER_BY = timedelta(seconds=1)
"""Two processes that ask the same database for the time never differ by more, unless its clock was
set."""

CLOCK, SET_BACK = "clock", "clock set back"
"""The rows with the last time of the database's clock, and with the moment at which it was seen to
be set back."""


class TickQuerySet(models.QuerySet["Tick"]):
    def claim(
        self, *, name: str, now: datetime, not_within: timedelta, at_once: bool = True
    ) -> bool:
        """Take the next run of `name` unless somebody ran it within `not_within`.

        Beat, a second beat and every executor's watchdog ask here; one of them gets the run. A
        function that never ran is due `at_once`, or after `not_within` from now. One that ran in
        the future is due: the clock was set back since.

        If another session holds the row for longer than the database's `lock_timeout`, the run is
        granted: a function that runs too often does no harm, one that never runs does.
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

    def clock_was_set_back(self, *, moment: Callable[[], datetime], within: timedelta) -> bool:
        """Return True if any process that asked here within this time saw the database's clock go
        back.

        The time is read after the row: whoever was kept from reading it finds the time of another.
        """
        clock, _ = self.get_or_create(name=CLOCK, defaults={"ran_at": moment()})
        now = moment()
        if clock.ran_at > now + PROCESSES_DIFFER_BY:
            self.update_or_create(name=SET_BACK, defaults={"ran_at": now})
        self.filter(name=CLOCK).update(ran_at=now)
        return self.filter(name=SET_BACK, ran_at__range=(now - within, now)).exists()

    def go_on_after_set_back(self, *, now: datetime) -> None:
        """Have `clock_was_set_back` be true for as long again: what a later clock wrote is not
        undone yet."""
        self.filter(name=SET_BACK).update(ran_at=now)

    def due_in(self, intervals: Mapping[str, timedelta], *, now: datetime) -> dict[str, float]:
        """For functions that run this often, the seconds until `claim` would grant a run, unless
        somebody is faster; 0 for what is due. One query: most that ask find nothing to do."""
        ran = dict(self.filter(name__in=intervals).values_list("name", "ran_at"))
        latest = now + PROCESSES_DIFFER_BY

        def seconds(name: str, interval: timedelta) -> float:
            if name not in ran or ran[name] > latest:
                return 0.0
            left: timedelta = ran[name] + interval - now
            return max(0.0, left.total_seconds())

        return {name: seconds(name, interval) for name, interval in intervals.items()}

    def of_functions(self) -> TickQuerySet:
        return self.exclude(name__in=[CLOCK, SET_BACK])


class Tick(models.Model):
    """The last run of one maintenance function; two rows are about the database's clock."""

    name = models.CharField(max_length=60, primary_key=True)
    ran_at = models.DateTimeField()

    objects = TickQuerySet.as_manager()

    def __str__(self) -> str:
        return f"{self.name} at {self.ran_at:%H:%M:%S}"


class Pruning(models.Model):
    """Says, inside of a transaction that prunes, that it does; see `finality.pruning`. Never
    committed, so nobody else sees a row."""

    def __str__(self) -> str:
        return "pruning"
