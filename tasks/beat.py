"""Beat's scheduler: django-celery-beat's, after a wait until the database is up."""

from __future__ import annotations

from typing import Any

from django_celery_beat.schedulers import DatabaseScheduler, ModelEntry

from orchestrator.core import database, presence


class Entry(ModelEntry):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        try:
            super().__init__(*args, **kwargs)
        except OverflowError as error:
            # an interval of a million years: the scheduler leaves out a row for this error alone
            raise ValueError(str(error)) from error


class Scheduler(DatabaseScheduler):
    Entry = Entry

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        database.wait_until_reachable()
        # beat makes a lazy one before, only to print its name
        is_lazy = kwargs.get("lazy", False)
        self.presence = None if is_lazy else presence.begin("beat")
        super().__init__(*args, **kwargs)

    def close(self) -> None:
        if self.presence is not None:
            self.presence.stop()
        super().close()
