"""Keepers: the executors that take messages of gates in, and answer them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import ClassVar

from django.db import models

ALIVE_SECONDS = 15.0
"""A keeper that was not seen for longer has no part of the prefetch."""


class KeeperQuerySet(models.QuerySet["Keeper"]):
    def alive(self, now: datetime) -> KeeperQuerySet:
        return self.filter(seen_at__gt=now - timedelta(seconds=ALIVE_SECONDS))


class Keeper(models.Model):
    """An executor with gates, at one broker."""

    name = models.CharField(max_length=150)
    broker = models.CharField(max_length=60)
    seen_at = models.DateTimeField()
    held = models.PositiveIntegerField(default=0, help_text="Deliveries not acknowledged yet.")
    problem = models.CharField(
        max_length=500, blank=True, default="", help_text="Why it takes nothing in, if so."
    )
    refused = models.JSONField(
        default=dict, blank=True, help_text="By queue: what the broker refuses of its gate."
    )

    objects: ClassVar[KeeperQuerySet] = KeeperQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering = ["broker", "name"]
        constraints = [
            models.UniqueConstraint("name", "broker", name="keeper_is_at_a_broker_once"),
        ]

    def __str__(self) -> str:
        return f"{self.name} at {self.broker}"

    def is_alive(self, now: datetime) -> bool:
        return self.seen_at > now - timedelta(seconds=ALIVE_SECONDS)
