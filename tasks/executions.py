"""Messages about executions, as Celery tasks.

An executor takes `schedule` and `completed` in batches (`tasks.batch_scheduler`); a stock Celery
worker on the same queues runs them one by one, with the same effect. `run` and `cancel` belong to a
worker, whose strategies intercept them before they become tasks.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from celery import Task, shared_task

from orchestrator.core import clock, executions, fleet, messages
from orchestrator.core.errors import MusterError
from tasks import app_parts

ACTOR = "executor"

placement = fleet.Placement()
"""This process's view of the fleet, for messages that run one by one."""


class Claimed(Task):
    """A task that a worker claims, in batches, before it runs."""

    Strategy = "workers.strategies:run_claimed"


class NotAWorker(MusterError):
    """Only a process started by `manage.py worker` may take this message."""


@shared_task(name=messages.SCHEDULE)
def schedule(*, execution_ids: list[str], **_: Any) -> None:
    executions.schedule(
        [UUID(id) for id in execution_ids], placement=placement, now=clock.now(), actor=ACTOR
    )


@shared_task(name=messages.COMPLETED)
def completed(*, execution_ids: list[str], **_: Any) -> None:
    ids = [UUID(id) for id in execution_ids]
    freed = executions.note_completed(ids, placement=placement)
    freed += executions.note_ended(ids, now=clock.now())
    for part in app_parts.parts():
        if part.ended is not None:
            part.ended(ids, now=clock.now(), actor=ACTOR)
    executions.schedule_backlog(placement=placement, now=clock.now(), actor=ACTOR, limit=freed)


@shared_task(name=messages.RUN, base=Claimed)
def run(**_: Any) -> None:
    raise NotAWorker


@shared_task(name=messages.CANCEL)
def cancel(*, execution_id: str, attempt: int, **_: Any) -> None:
    raise NotAWorker
