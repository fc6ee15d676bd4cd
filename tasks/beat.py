"""Beat's scheduler: django-celery-beat's, after a wait until the database is up, with the intervals
of the settings, and with an end in good order whatever it is doing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from celery import platforms
from django.db import DEFAULT_DB_ALIAS
from django_celery_beat.schedulers import DatabaseScheduler, ModelEntry

from orchestrator.core import database, presence, schedule
from orchestrator.core.presence import Presence


class Entry(ModelEntry):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        try:
            super().__init__(*args, **kwargs)
        except OverflowError as error:
            # an interval of a million years: the scheduler leaves out a row for this error alone
            raise ValueError(str(error)) from error


class Scheduler(DatabaseScheduler):
    """Celery's own handler of SIGTERM and SIGINT saves the schedule: in the middle of a statement,
    it would wait for the connection that its own thread holds. Ours ends beat while it sleeps, and
    otherwise after what it is doing; a second signal ends it at once, and then nothing is saved."""

    Entry = Entry
    presence: Presence | None = None
    is_busy = False
    """True while it may be in the middle of a statement."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.signals_heard = 0
        # beat makes a lazy one before, only to print its name
        if kwargs.get("lazy", False):
            super().__init__(*args, **kwargs)
            return
        for name in ("SIGTERM", "SIGINT"):
            platforms.signals[name] = self._hear
        database.wait_until_reachable()
        super().__init__(*args, **kwargs)
        self.presence = presence.begin("beat")

    def setup_schedule(self) -> None:
        schedule.install(using=DEFAULT_DB_ALIAS)
        super().setup_schedule()

    def _hear(self, *_: Any) -> None:
        self.signals_heard += 1
        if not self.is_busy or self.presence is None or self.signals_heard > 1:
            raise SystemExit  # beat's loop then closes this scheduler

    def tick(self, *args: Any, **kwargs: Any) -> Any:
        with self._busy():
            seconds = super().tick(*args, **kwargs)
        if self.signals_heard:
            raise SystemExit
        return seconds

    def _ensure_connected(self) -> Any:
        """Wait for the broker, if need be for ever: meanwhile nothing keeps beat from its end."""
        if self.signals_heard:
            raise SystemExit
        before, self.is_busy = self.is_busy, False
        try:
            return super()._ensure_connected()
        finally:
            self.is_busy = before

    def sync(self) -> None:
        if self.signals_heard < 2:
            with self._busy():
                super().sync()

    @contextmanager
    def _busy(self) -> Iterator[None]:
        before, self.is_busy = self.is_busy, True
        try:
            yield
        finally:
            self.is_busy = before

    def close(self) -> None:
        if self.presence is not None:
            self.presence.stop()
        super().close()
