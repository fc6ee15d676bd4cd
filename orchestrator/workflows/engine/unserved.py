"""Steps that found no worker: they are tried again when one has come.

A step whose last attempt found no worker, or was not taken by its worker, is in error, and its task
is blocked. It waits for a worker, whatever entries about the task are open or closed, with two
exceptions: its template says `on_no_worker: fail`, or somebody has closed an entry about the task
as `permanently_failed` since.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice
from uuid import UUID

import structlog
from django.db.models import Exists, OuterRef, Q, QuerySet

from orchestrator.core import fleet
from orchestrator.core.errors import Conflict
from orchestrator.core.models import DLQEntry, Worker
from orchestrator.core.models.execution_sets import SUSPECT_FROM
from orchestrator.core.reasons import WITHOUT_A_WORKER, Known
from orchestrator.workflows.engine.repairs import UnknownStep, reset_for_retry
from orchestrator.workflows.engine.turn import definition_of
from orchestrator.workflows.models import Step
from orchestrator.workflows.states import StepState, TaskState
from orchestrator.workflows.task_templates.definitions import WAIT

log = structlog.get_logger(__name__)

ACTOR = "worker_watch"
WHY = "a worker for it has come"

AT_ONCE = 200
"""The most steps of one run."""

NEVER_STARTED = sorted(
    reason.value for reason in WITHOUT_A_WORKER if reason.known is Known.NEVER_STARTED
)
"""Reasons of steps that had no worker, or whose worker did not take them: all others are left to
people, as their action may have happened."""

ALIKE = (
    *(f"execution__{name}" for name in ("action", "release", "queue", "lane")),
    "task__template",
    "task__environment",
)
"""The columns that decide which workers may run a step (the rest of its `fleet.Need` is of its
action), and whether it waits for one."""

PAUSE = timedelta(seconds=60)
"""A worker that was there before the step failed may have come back since; but if no dispatch finds
it, the step is not tried more often than this."""


def retry_served(*, now: datetime) -> int:
    """Try steps again for which there is a worker now; returns how many."""
    served = list(islice(_served(now=now), AT_ONCE))
    for step_id in served:
        with suppress(Conflict, UnknownStep):  # an operator got there first
            reset_for_retry(step_id, reason=WHY, actor=ACTOR, now=now)
    if served:
        log.info("steps are tried again, as workers have come", steps=len(served))
    return len(served)


def _served(*, now: datetime) -> Iterator[UUID]:
    unserved = _unserved()
    groups = list(unserved.values(*ALIKE).distinct().order_by())
    workers = fleet.present(now=now) if groups else []
    for group in groups:
        steps = unserved.filter(**group).order_by("pk")
        first = steps.first()  # it speaks for all that are alike
        if first is not None and _waits(first) and (able := _able(first, workers)):
            yield from steps.filter(_is_due(able, now)).values_list("pk", flat=True)[:AT_ONCE]


def _unserved() -> QuerySet[Step]:
    """The steps in error of blocked tasks that never began. Reads only the entries of the index
    `step_error_by_reason` that have these reasons."""
    given_up = DLQEntry.objects.filter(
        subject_id=OuterRef("task_id"),
        resolution_status=DLQEntry.Resolution.PERMANENTLY_FAILED,
        resolved_at__gte=OuterRef("last_failure_at"),
    )
    steps = Step.objects.filter(
        ~Exists(given_up),
        state=StepState.ERROR,
        error__reason__in=NEVER_STARTED,
        error__lost_workers__lt=SUSPECT_FROM,
        execution__isnull=False,
        task__state=TaskState.BLOCKED_BY_FAILURES,
    )
    return steps.select_related("task__template", "execution__action__pack")


def _able(step: Step, workers: Sequence[Worker]) -> list[Worker]:
    assert step.execution is not None  # see `_unserved`
    need = fleet.Need.of_execution(step.execution)
    return [worker for worker in workers if need.may_go_to(worker, worker.missing_code)]


def _is_due(able: Sequence[Worker], now: datetime) -> Q:
    """Failed before one of these workers came, or long enough ago."""
    came_at = [worker.registered_at for worker in able if worker.registered_at]
    return ~Q(last_failure_at__gt=max([now - PAUSE, *came_at]))


def _waits(step: Step) -> bool:
    return definition_of(step.task).lifecycle.on_no_worker == WAIT
