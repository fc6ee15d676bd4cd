"""Counters kept in the database, where every process adds to them, so that a scrape is correct."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from django.db import connections, models


class TallyKey(NamedTuple):
    """The name of one number: the metric, its `reason` label, and for a histogram the bucket."""

    metric: str
    reason: str = ""
    part: str = ""
    """`le` of a bucket, or `sum`; empty for a counter."""


class TallyQuerySet(models.QuerySet["Tally"]):
    def add(self, amounts: Mapping[TallyKey, float]) -> None:
        """Add to each number, in one statement of the caller's transaction.

        In the order of their keys: two processes that add to the same numbers cannot deadlock.
        """
        if not amounts:
            return
        quote = connections[self.db].ops.quote_name
        table = quote(self.model._meta.db_table)
        rows = [(*key, amount) for key, amount in sorted(amounts.items())]
        sql = f"""
            INSERT INTO {table} (metric, reason, part, value)
            VALUES {", ".join(["(%s, %s, %s, %s)"] * len(rows))}
            ON CONFLICT (metric, reason, part) DO UPDATE SET value = {table}.value + excluded.value
        """  # noqa: S608 - the one interpolated name is our own table's
        with connections[self.db].cursor() as cursor:
            cursor.execute(sql, [value for row in rows for value in row])


class Tally(models.Model):
    """One number of a metric."""

    metric = models.CharField(max_length=100)
    reason = models.CharField(max_length=40, blank=True)
    part = models.CharField(max_length=20, blank=True)
    value = models.FloatField(default=0)

    objects = TallyQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "tallies"
        constraints = [
            models.UniqueConstraint("metric", "reason", "part", name="tally_is_one_number"),
        ]

    def __str__(self) -> str:
        return f"{self.metric}{{{self.reason}}} {self.part} {self.value:g}"


class HistoryMark(models.Model):
    """The mark up to which the history of executions has been counted: see `metrics.history`. One
    row."""

    counted_to = models.BigIntegerField(help_text="Events up to this id are counted.")
    counted_until = models.DateTimeField(
        null=True, help_text="What was written before this is counted."
    )
    seen_to = models.BigIntegerField(help_text="The last id when somebody last looked.")
    seen_before = models.BigIntegerField(
        default=0, help_text="Its events are of transactions with smaller numbers."
    )
    seen_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"counted to {self.counted_to}"

    @property
    def is_reached(self) -> bool:
        """True if nothing that was seen is left to be counted."""
        return self.counted_to >= self.seen_to
