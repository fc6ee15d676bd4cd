"""News for the executor: from messages, and from looking for what no message reported."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
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
from orchestrator.workflows.engine.advancing import advance, advance_free
from orchestrator.workflows.models import Step, StepExecution, Task
from orchestrator.workflows.states import StepState
from orchestrator.workflows.task_templates.definitions import INQUIRY

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


class Pace:
    """The number of tasks that are advanced in one transaction: as many as take a fraction of a
    second.

    A statement that serves many tasks costs little more than one for a single task. But what the
    first of them requests waits for the last, and so does an operator who repairs one.
    """

    MOST = 32
    SLOW_SECONDS = 0.25

    def __init__(self) -> None:
        self.tasks = 1

    def took(self, tasks: int, seconds: float) -> None:
        """Learn from a transaction."""
        if seconds > self.SLOW_SECONDS:
            self.tasks = max(1, min(self.tasks, tasks) // 2)
        elif tasks >= self.tasks:
            self.tasks = min(self.MOST, self.tasks * 2)


_pace = Pace()


def advance_all(task_ids: Collection[UUID], *, now: datetime, actor: str) -> int:
    """Advance these tasks, several in one transaction, each group at its own time: hundreds take
    seconds.

    One that fails, or that another session holds, does not stop the others. Raises the database's
    error if that is away: at a second failure, as a first task may be alone with it.
    """
    moment = clock.Running(now)
    failures = _Failures()
    waiting = sorted(task_ids)
    while waiting:
        group, waiting = waiting[: _pace.tasks], waiting[_pace.tasks :]
        began = time.monotonic()
        advanced: set[UUID] = set()
        if len(group) > 1:
            with failures.about(tasks=len(group)):
                advanced = _advance_together(group, now=moment(), actor=actor)
        for task_id in group:
            if task_id not in advanced:
                with failures.about(task_id=str(task_id)):
                    _advance(task_id, now=moment(), actor=actor)
        _pace.took(len(group), time.monotonic() - began)
    return len(task_ids)


class _Failures:
    """Errors of advances: whatever it is, it is about those tasks, and the others do not wait."""

    def __init__(self) -> None:
        self.outages = 0

    @contextmanager
    def about(self, **named: Any) -> Iterator[None]:
        """Log the error of an advance of one task, or of several together. Raises the second outage
        that a task met alone."""
        try:
            yield
        except Exception as error:
            named["error"] = repr(error)
            if sqlstate(error) in CONTENDED:
                log.warning("held by another session", **named)
            elif is_outage(error):
                self.outages += "task_id" in named
                if self.outages > 1:
                    raise
                log.warning("not advanced, the database failed", **named)
                close_old_connections()
            elif "task_id" in named:
                log.exception("neither advanced nor given up", **named)
            else:
                log.warning("not advanced together, each alone now", **named)


def _advance_together(task_ids: Sequence[UUID], *, now: datetime, actor: str) -> set[UUID]:
    """Advance those of the tasks that are free in one transaction; returns them. If that fails, the
    try of each goes on alone: one of them may be to blame."""
    taken = tries.begin_free(task_ids)
    advanced: set[UUID] = set()
    try:
        advanced = advance_free(taken, now=now, actor=actor)
    finally:
        for task_id in taken - advanced:
            tries.suspend(task_id)
    return advanced


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

    On the way, steps whose executions have started become `in_progress`, and those whose inquiries
    were asked `waiting_for_inquiry`. Each query reads a partial index over open rows, one batch at
    a time.
    """
    limit: int = settings.MUSTER.batch_size
    fresh = Task.objects.not_begun(GRACE, now)
    due = Task.objects.retry_due(now)
    ids = {*fresh.values_list("pk", flat=True)[:limit], *due.values_list("pk", flat=True)[:limit]}
    begun: list[Move] = []
    asked: list[Move] = []
    ended = set()
    for step in _with_news(limit):
        if step.execution is None or step.execution.ended_at is not None:
            ended.add(step.task_id)
        else:
            news = asked if step.kind == INQUIRY else begun
            news.append(Move(step.pk, step.state, step.fence))
    # a row that another session holds is found again
    Step.objects.transition_many("start", begun, now=now, actor=actor, wait_for_locks=False)
    Step.objects.transition_many("ask", asked, now=now, actor=actor, wait_for_locks=False)
    return advance_all(ids | ended, now=now, actor=actor)


def _with_news(limit: int) -> list[Step]:
    """Steps whose execution has started, asked or ended since they were last moved."""
    ended = Q(execution__ended_at__isnull=False) | Q(execution__isnull=True)
    begun = Q(state=StepState.ENQUEUED, execution__status__in=["running", "canceling"])
    asked = Q(state=StepState.ENQUEUED, kind=INQUIRY, execution__status="scheduling")
    news = Step.objects.in_flight().not_quarantined().filter(ended | begun | asked)
    news = news.select_related("execution")
    return list(
        news.only(
            "task_id", "kind", "state", "fence", "execution__ended_at", "execution__status"
        ).order_by("pk")[:limit]
    )
