"""News for the executor: from messages, and from looking for what no message reported."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import close_old_connections
from django.db.models import Q

from orchestrator.core import clock
from orchestrator.core.database import (
    DEADLOCK_DETECTED,
    LOCK_NOT_AVAILABLE,
    SERIALIZATION_FAILURE,
    is_outage,
    sqlstate,
)
from orchestrator.core.models.maintenance import PROCESSES_DIFFER_BY
from orchestrator.core.state_machine import Move
from orchestrator.workflows.engine import tries
from orchestrator.workflows.engine.advancing import advance
from orchestrator.workflows.models import Step, StepExecution, Task
from orchestrator.workflows.states import StepState

log = structlog.get_logger(__name__)

CONTENDED = (LOCK_NOT_AVAILABLE, DEADLOCK_DETECTED, SERIALIZATION_FAILURE)
"""Another session wanted the same rows."""

GRACE = timedelta(seconds=1)
"""A younger task is normally handled by the receiver of its message."""


def note_ended(execution_ids: Collection[UUID], *, now: datetime, actor: str) -> int:
    """Advance the tasks to which these executions belong; returns how many tasks.

    One query finds the executions that belong to steps.
    """
    links = StepExecution.objects.filter(execution_id__in=execution_ids)
    tasks = links.order_by().values_list("step__task_id", flat=True).distinct()
    return advance_all(set(tasks), now=now, actor=actor)


def advance_all(task_ids: Collection[UUID], *, now: datetime, actor: str) -> int:
    """Advance these tasks, each in its own transaction and at its own time: hundreds take seconds.

    One that fails, or that another session holds, does not stop the others. Raises the database's
    error if that is away: at a second task, as a first may be alone with it.
    """
    moment = clock.running_from(now)
    outages = 0
    for task_id in sorted(task_ids):
        try:
            _advance(task_id, now=moment(), actor=actor)
        except Exception as error:
            # whatever it is, it is about this task, and the others do not wait for it
            named: dict[str, Any] = {"task_id": str(task_id), "error": repr(error)}
            if sqlstate(error) in CONTENDED:
                log.warning("task is held by another session", **named)
            elif is_outage(error):
                outages += 1
                if outages > 1:
                    raise
                log.warning("task not advanced, the database failed", **named)
                close_old_connections()
            else:
                log.exception("task neither advanced nor given up", **named)
    return len(task_ids)


def _advance(task_id: UUID, *, now: datetime, actor: str) -> None:
    """Advance one task, as one of its tries. Raises the database's errors that it is not to blame
    for."""
    if not tries.begin(task_id, now=now, actor=actor):
        return
    try:
        advance(task_id, now=now, actor=actor)
    except Exception as error:
        # a fault of ours or of the template must not come back every second for ever
        if is_outage(error):
            tries.suspend(task_id)
            raise
        log.exception("task not advanced", task_id=str(task_id))
        tries.failed(task_id, error, now=now, actor=actor)


def any_open() -> bool:
    """Return True if there is an open task."""
    return Task.objects.open().exists()


def bring_forward(*, now: datetime) -> int:
    """Make due the retries whose time came from a clock that was set back since; returns how many
    tasks and steps."""
    later = {"next_retry_at__gt": now, "state_entered_at__gt": now + PROCESSES_DIFFER_BY}
    waiting = (each.objects.filter(ended_at__isnull=True, **later) for each in (Task, Step))
    return sum(rows.update(next_retry_at=now) for rows in waiting)


def look(*, now: datetime, actor: str) -> int:
    """Find what no message reported, and due retries; returns how many tasks were advanced.

    On the way, steps whose executions have started become `in_progress`. Each query reads a partial
    index over open rows, one batch at a time.
    """
    limit: int = settings.MUSTER.batch_size
    fresh = Task.objects.not_begun(GRACE, now)
    due = Task.objects.retry_due(now)
    ids = {*fresh.values_list("pk", flat=True)[:limit], *due.values_list("pk", flat=True)[:limit]}
    begun, ended = [], set()
    for step in _with_news(limit):
        if step.execution is None or step.execution.ended_at is not None:
            ended.add(step.task_id)
        else:
            begun.append(Move(step.pk, step.state, step.fence))
    # a row that another session holds is found again
    Step.objects.transition_many("start", begun, now=now, actor=actor, wait_for_locks=False)
    return advance_all(ids | ended, now=now, actor=actor)


def _with_news(limit: int) -> list[Step]:
    """Steps whose execution has started or ended since they were last moved."""
    ended = Q(execution__ended_at__isnull=False) | Q(execution__isnull=True)
    begun = Q(state=StepState.ENQUEUED, execution__status__in=["running", "canceling"])
    news = Step.objects.in_flight().not_quarantined().filter(ended | begun)
    news = news.select_related("execution")
    return list(
        news.only("task_id", "state", "fence", "execution__ended_at", "execution__status").order_by(
            "pk"
        )[:limit]
    )
