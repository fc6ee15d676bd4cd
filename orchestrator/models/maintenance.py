"""When each maintenance function last ran, over all processes."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import models


class TickQuerySet(models.QuerySet["Tick"]):
    def claim(
        self, *, name: str, now: datetime, not_within: timedelta, at_once: bool = True
    ) -> bool:
        """Take the next run of `name` unless somebody ran it within `not_within`.

        Beat, a second beat and every executor's watchdog ask here; one of them gets it. What never
        ran is due `at_once`, or counts from now on.
        """
        taken = self.filter(name=name, ran_at__lte=now - not_within).update(ran_at=now)
        if taken:
            return True
        _, created = self.get_or_create(name=name, defaults={"ran_at": now})
        return created and at_once


class Tick(models.Model):
    """The last run of one maintenance function."""

    name = models.CharField(max_length=60, primary_key=True)
    ran_at = models.DateTimeField()

    objects = TickQuerySet.as_manager()

    def __str__(self) -> str:
        return f"{self.name} at {self.ran_at:%H:%M:%S}"
