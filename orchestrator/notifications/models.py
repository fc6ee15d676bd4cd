"""The listeners, the notes of the database's triggers, and tickets for streams."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from django.db import models


class ListenerQuerySet(models.QuerySet["Listener"]):
    def wanting(self, now: datetime) -> ListenerQuerySet:
        """Alive, and with clients that wait."""
        return self.filter(wanted_until__gt=now)

    def alive(self, now: datetime) -> ListenerQuerySet:
        return self.filter(alive_until__gt=now)


class Listener(models.Model):
    """A process that follows what changes: a notifier, an API, or `manage.py stream`."""

    name = models.CharField(max_length=150, unique=True)
    alive_until = models.DateTimeField(help_text="Renewed each second.")
    wanted_until = models.DateTimeField(
        null=True, help_text="Renewed while it has clients: until then, changes are published."
    )
    clients = models.PositiveIntegerField(default=0)
    lag_ms = models.PositiveIntegerField(
        default=0, help_text="From the last change to its arrival here."
    )
    problem = models.CharField(
        max_length=200, blank=True, default="", help_text="Why it hears late, if so."
    )

    objects: ClassVar[ListenerQuerySet] = ListenerQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Change(models.Model):
    """A row of a feed that was inserted or changed. Triggers of the database write them."""

    entity = models.CharField(max_length=40)
    key = models.CharField(max_length=40, help_text="The id of the row.")
    verb = models.CharField(max_length=10, help_text="`created` or `changed`.")
    at = models.DateTimeField()

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"{self.entity} {self.key} {self.verb}"


class StreamTicket(models.Model):
    """Lets a browser open one stream. Only who has its text can read what is sealed in it."""

    digest = models.CharField(max_length=64, primary_key=True, help_text="SHA-256 of its text.")
    sealed = models.BinaryField(help_text="The Authorization header of who asked for it.")
    expires_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return f"ticket {self.digest[:8]}"
