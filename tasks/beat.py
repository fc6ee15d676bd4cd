"""Beat's scheduler: django-celery-beat's, after a wait until the database is up."""

from __future__ import annotations

from typing import Any

from django_celery_beat.schedulers import DatabaseScheduler

from orchestrator.core import database


class Scheduler(DatabaseScheduler):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        database.wait_until_reachable()
        super().__init__(*args, **kwargs)
