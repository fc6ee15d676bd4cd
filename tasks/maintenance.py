"""Maintenance functions as Celery tasks: each translates a tick into one call."""

from __future__ import annotations

from typing import Any

from celery import shared_task
from django.db import close_old_connections

from orchestrator.core import clock, maintenance


def _register(name: str) -> None:
    @shared_task(name=name)
    def tick(**_: Any) -> None:
        # Celery keeps a session that broke as long as any other, see celery_config
        close_old_connections()
        maintenance.run(name, now=clock.asked_now())


for name in maintenance.functions():
    _register(name)
