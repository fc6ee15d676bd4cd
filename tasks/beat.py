"""Beat's scheduler: django-celery-beat's, after a wait until the database is up, and with an end
in good order whatever it is doing."""

from __future__ import annotations

from typing import Any

from celery import platforms
from django_celery_beat.schedulers import DatabaseScheduler, ModelEntry

from orchestrator.core import database, presence
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
    it would wait for the connection that its own thread holds. Ours only counts: the first signal
    ends beat at its next tick, a second within what it is doing, and then nothing is saved."""

    Entry = Entry
    presence: Presence | None = None

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

    def _hear(self, *_: Any) -> None:
        self.signals_heard += 1
        if self.presence is None or self.signals_heard > 1:
            raise SystemExit

    def tick(self, *args: Any, **kwargs: Any) -> Any:
        if self.signals_heard:
            raise SystemExit  # beat's loop then closes this scheduler
        return super().tick(*args, **kwargs)

    def sync(self) -> None:
        if self.signals_heard < 2:
            super().sync()

    def close(self) -> None:
        if self.presence is not None:
            self.presence.stop()
        super().close()
