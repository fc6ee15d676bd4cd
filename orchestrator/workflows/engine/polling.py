"""What the executor learns of: by messages, and by looking for what no message told of."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from uuid import UUID

import structlog
from django.conf import settings
from django.db import OperationalError
from django.db.models import Q

from orchestrator.core import clock
from orchestrator.core.database import LOCK_NOT_AVAILABLE, sqlstate
from orchestrator.core.errors import MusterError
from orchestrator.core.models.maintenance import PROCESSES_DIFFER_BY
from orchestrator.core.state_machine import Move
from orchestrator.workflows.engine.advancing import advance
from orchestrator.workflows.models import Step, StepExecution, Task
from orchestrator.workflows.states import StepState

log = structlog.get_logger(__name__)

GRACE = timedelta(seconds=1)
"""What is younger is somebody's work, of whom a message told."""


def note_ended(execution_ids: Collection[UUID], *, now: datetime, actor: str) -> int:
    """Advance the tasks whose executions these are; returns how many tasks.

    One query tells which of the executions belong to steps at all.
    """
    links = StepExecution.objects.filter(execution_id__in=execution_ids)
    tasks = links.order_by().values_list("step__task_id", flat=True).distinct()
    return advance_all(set(tasks), now=now, actor=actor)


def advance_all(task_ids: Collection[UUID], *, now: datetime, actor: str) -> int:
    """Advance these, each in a transaction and at a time of its own: hundreds take seconds. One
    that cannot, or that another session holds, does not stop the others."""
    moment = clock.running_from(now)
    for task_id in sorted(task_ids):
        try:
            advance(task_id, now=moment(), actor=actor)
        except MusterError as error:
            log.warning("task not advanced", task_id=str(task_id), error=str(error))
        except OperationalError as error:
            if sqlstate(error) != LOCK_NOT_AVAILABLE:
                raise
            log.warning("task is held by another session", task_id=str(task_id), error=str(error))
    return len(task_ids)


def any_open() -> bool:
    """Whether there is a task that could go on."""
    return Task.objects.open().exists()


def bring_forward(*, now: datetime) -> int:
    """Make due what is tried again at a time that a clock has set which was set back since;
    returns how many tasks and steps."""
    later = {"next_retry_at__gt": now, "state_entered_at__gt": now + PROCESSES_DIFFER_BY}
    waiting = (each.objects.filter(ended_at__isnull=True, **later) for each in (Task, Step))
    return sum(rows.update(next_retry_at=now) for rows in waiting)


def look(*, now: datetime, actor: str) -> int:
    """Find what no message told of, and retries that are due; returns how many tasks went on.

    Steps whose executions have begun become `in_progress` on the way. Each question is answered
    by a partial index over what is open, and a batch at a time.
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
    # one that somebody holds is found again
    Step.objects.transition_many("start", begun, now=now, actor=actor, wait_for_locks=False)
    return advance_all(ids | ended, now=now, actor=actor)


def _with_news(limit: int) -> list[Step]:
    """Steps whose execution has gone further than they have."""
    ended = Q(execution__ended_at__isnull=False) | Q(execution__isnull=True)
    begun = Q(state=StepState.ENQUEUED, execution__status__in=["running", "canceling"])
    news = Step.objects.in_flight().filter(ended | begun).select_related("execution")
    return list(
        news.only("task_id", "state", "fence", "execution__ended_at", "execution__status").order_by(
            "pk"
        )[:limit]
    )
