"""Pauses of a worker's subscriptions: it takes nothing of a queue for a while.

An action that said "not now" speaks for the place where it would have run. So its worker takes no
more of the same queue until the pause is over, and goes on with all others. Work without a queue is
of all kinds; there a pause is about the action alone. A pause ends by itself: its time is in the
worker's row, and nobody has to undo it. A new life of the worker has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

import structlog
from django.db import transaction

from orchestrator.core.fleet.lives import change, this_life
from orchestrator.core.fleet.needs import Need
from orchestrator.core.models import Execution, Worker
from orchestrator.core.models.fleet import LONGEST_PAUSE, paused

log = structlog.get_logger(__name__)

DIFFER_BY = timedelta(seconds=2)
"""The end of a pause in the worker's row may differ from the worker's own count by this much: more
means that the clock was set."""


def pause(*, worker_id: int, incarnation: int, seconds: Mapping[str, float], now: datetime) -> bool:
    """Pause these for so many seconds from now; one that is paused for longer already stays so.

    Called before the executions go back whose actions said "not now". Returns False for a worker
    that is gone, or in another life: it is left alone.
    """
    with transaction.atomic():
        worker = this_life(worker_id, incarnation)
        if worker is None:
            return False
        before = paused(worker.queue_pauses, now=now)
        new = {
            name: max(now + _length(wanted), before.get(name, now))
            for name, wanted in seconds.items()
        }
        change(worker, queue_pauses=_written(before | new))
    _log_begin(worker, before, new)
    return True


def set_pauses(
    *, worker_id: int, incarnation: int, seconds: Mapping[str, float], now: datetime
) -> bool:
    """Let the worker pause just these, for so many seconds from now, and end its other pauses.
    Returns True if its row said something else. A worker in another life is left alone."""
    with transaction.atomic():
        worker = this_life(worker_id, incarnation)
        if worker is None:
            return False
        before = paused(worker.queue_pauses, now=now)
        after = {name: now + _length(wanted) for name, wanted in seconds.items()}
        written = worker.queue_pauses
        if written.keys() == after.keys() and not _differ(before, after):
            return False
        change(worker, queue_pauses=_written(after))
    _log_begin(worker, before, after)
    for name in written.keys() - after.keys():
        log.info("worker resumes", worker=worker.name, queue=name)
    return True


def _log_begin(
    worker: Worker, before: Mapping[str, datetime], after: Mapping[str, datetime]
) -> None:
    for name in after.keys() - before.keys():
        log.warning("worker pauses", worker=worker.name, queue=name, until=after[name].isoformat())


def is_waiting_for_health(execution: Execution, *, now: datetime) -> bool:
    """Return True if every worker that could run this execution pauses it."""
    need = Need.of_execution(execution)
    able = [
        worker
        for worker in Worker.objects.eligible(now)
        if need.may_go_to(worker, worker.missing_code)
    ]
    key = execution.lane_key
    return bool(able) and all(key in paused(worker.queue_pauses, now=now) for worker in able)


def _differ(before: Mapping[str, datetime], after: Mapping[str, datetime]) -> bool:
    return before.keys() != after.keys() or any(
        abs(before[name] - until) > DIFFER_BY for name, until in after.items()
    )


def _length(seconds: float) -> timedelta:
    return min(timedelta(seconds=seconds), LONGEST_PAUSE)


def _written(pauses: Mapping[str, datetime]) -> dict[str, str]:
    return {name: pauses[name].isoformat() for name in sorted(pauses)}
