"""Steps that found no worker: they are tried again when one has come.

A step whose last attempt found no worker, or was not taken by its worker, is in error, its task is
blocked, and an investigation is open. As long as that is pending, the task waits for a worker,
unless its template says `on_no_worker: fail`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice

import structlog
from django.db.models import QuerySet

from orchestrator.core import fleet
from orchestrator.core.errors import Conflict
from orchestrator.core.models import DLQEntry, Worker
from orchestrator.core.reasons import WITHOUT_A_WORKER, Known
from orchestrator.workflows import snapshots
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

NEEDED = tuple(f"execution__{name}" for name in ("action", "release", "queue", "lane"))
"""The columns that decide which workers may run a step; the rest of its `fleet.Need` is of its
action."""

PAUSE = timedelta(seconds=60)
"""A worker that was there before the step failed may have come back since; but if no dispatch finds
it, the step is not tried more often than this."""


def retry_served(*, now: datetime) -> int:
    """Try steps again for which there is a worker now; returns how many."""
    served = list(islice(_served(now=now), AT_ONCE))
    for step in served:
        with suppress(Conflict, UnknownStep):  # an operator got there first
            reset_for_retry(step.pk, reason=WHY, actor=ACTOR, now=now)
    if served:
        log.info("steps are tried again, as workers have come", steps=len(served))
    return len(served)


def _served(*, now: datetime) -> Iterator[Step]:
    unserved = _unserved()
    kinds = list(unserved.values(*NEEDED).distinct().order_by())
    workers = fleet.present(now=now) if kinds else []
    for kind in kinds:
        steps = unserved.filter(**kind).order_by("pk")
        first = steps.first()  # it speaks for all that need the same
        able = _able(first, workers) if first else []
        for step in steps[:AT_ONCE] if able else ():
            if _is_due(step, able, now) and _waits(step):
                yield step


def _unserved() -> QuerySet[Step]:
    entries = DLQEntry.objects.pending().filter(
        dlq_reason=DLQEntry.Reason.WORKER_UNAVAILABLE, subject_kind=snapshots.KIND
    )
    steps = Step.objects.filter(
        task__in=entries.values("subject_id"),
        task__state=TaskState.BLOCKED_BY_FAILURES,
        state=StepState.ERROR,
        error__reason__in=NEVER_STARTED,
        execution__isnull=False,
    )
    return steps.select_related("task__template", "execution__action__pack")


def _able(step: Step, workers: Sequence[Worker]) -> list[Worker]:
    assert step.execution is not None  # see `_unserved`
    need = fleet.Need.of_execution(step.execution)
    return [worker for worker in workers if need.may_go_to(worker, worker.missing_code)]


def _is_due(step: Step, able: Sequence[Worker], now: datetime) -> bool:
    failed_at = step.last_failure_at
    if failed_at is None or failed_at <= now - PAUSE:
        return True
    return any(worker.registered_at > failed_at for worker in able if worker.registered_at)


def _waits(step: Step) -> bool:
    return definition_of(step.task).lifecycle.on_no_worker == WAIT
