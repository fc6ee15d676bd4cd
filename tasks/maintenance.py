"""Maintenance functions as Celery tasks: each translates a tick into one call."""

from __future__ import annotations

from typing import Any

from celery import shared_task

from orchestrator.core import clock, maintenance


def _register(name: str) -> None:
    @shared_task(name=name)
    def tick(**_: Any) -> None:
        maintenance.run(name, now=clock.asked_now())


for name in maintenance.functions():
    _register(name)
