"""Executions whose action said "not now": they go back to the backlog, wait, and count for nothing.

A deferral is no end. It spends no retry, and no limit of attempts counts it; only the deadline
bounds how often. The attempt's number still grows with the next dispatch, as it is the fence. By
its own word the action has not begun, so one that is not idempotent may be run again, too.

Its worker takes nothing more of the same queue for a while (`fleet.pauses`). The worker's row says
so before the execution goes back, so that the next placement knows it; and what was sent ahead to
that worker goes back, too. Both are a part of the same report: a worker that dies before it has
written all of it is lost, and a new life of it has no pauses.

The history is what counts earlier deferrals: it has a row for each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Count

from orchestrator.core import deferral, fleet, json_values
from orchestrator.core.executions.ended import RETRY_AFTER, Ended
from orchestrator.core.models import Execution, ExecutionEvent
from orchestrator.core.reasons import Reason

Terms = Mapping[str | None, deferral.DeferTerms]

LONGEST_SECONDS = 60.0
"""The wait stops doubling here: a minute later than possible is the worst for what could begin."""

LONGEST_ASKED_SECONDS = 7 * 86_400.0

MOST_DOUBLINGS = 16
"""More would only give large numbers that `LONGEST_SECONDS` cuts off."""


def settled(ended: Sequence[Ended], *, now: datetime) -> Sequence[Ended]:
    """Complete the deferrals among these ends, and pause their workers; others stay as they are.

    Each says in its result after how many seconds it is due. One whose deadline has passed is no
    deferral any more: it ends for that reason.
    """
    deferred = [end for end in ended if end.reason is Reason.TASK_REJECTED]
    if not deferred:
        return ended
    terms = deferral.terms({end.execution.queue for end in deferred})
    _pause_workers(deferred, terms, now)
    earlier = _earlier([e.execution.pk for e in deferred if asked_seconds(e.result) is None])
    return [
        _settled(end, terms[end.execution.queue], earlier, now)
        if end.reason is Reason.TASK_REJECTED
        else end
        for end in ended
    ]


def _pause_workers(deferred: Sequence[Ended], terms: Terms, now: datetime) -> None:
    lives: dict[tuple[int, int], dict[str, float]] = defaultdict(dict)
    for end in deferred:
        execution = end.execution
        life = execution.worker_id or 0, execution.worker_incarnation or 0
        lives[life][execution.lane_key] = terms[execution.queue].pause_seconds
    for (worker_id, incarnation), seconds in lives.items():
        fleet.pause(worker_id=worker_id, incarnation=incarnation, seconds=seconds, now=now)


def _settled(
    end: Ended, terms: deferral.DeferTerms, earlier: Mapping[UUID, int], now: datetime
) -> Ended:
    if now >= end.execution.deadline_at:
        late = Reason.DEADLINE_PASSED
        return replace(end, reason=late, result={**end.result, "error": late.text})
    if asked_seconds(end.result) is not None:
        return end
    seconds = wait_seconds(terms.defer_seconds, earlier=earlier.get(end.execution.pk, 0))
    return replace(end, result={**end.result, RETRY_AFTER: seconds})


def asked_seconds(result: Mapping[str, Any]) -> float | None:
    """The wait that the action asks for; None if it asks for none that is possible."""
    seconds = result.get(RETRY_AFTER)
    if json_values.is_number(seconds) and 0 <= seconds <= LONGEST_ASKED_SECONDS:
        return float(seconds)
    return None


def wait_seconds(base_seconds: float, *, earlier: int) -> float:
    """The wait after so many earlier deferrals: base x 1, 2, 4, ... up to a minute, or to the base
    if that is longer. So what only waits goes before what was refused again and again."""
    doubled: float = base_seconds * 2 ** min(earlier, MOST_DOUBLINGS)
    return min(doubled, max(LONGEST_SECONDS, base_seconds))


def pause(execution: Execution, result: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Values to set for the wait of a settled deferral; it is never due after the deadline."""
    seconds = float(result[RETRY_AFTER])
    due_at = min(now + timedelta(seconds=seconds), execution.deadline_at)
    return {
        "next_retry_at": due_at if seconds else None,
        "start_by": None,
        "run_deadline_at": None,
    }


def _earlier(execution_ids: Collection[UUID]) -> dict[UUID, int]:
    """The number of deferrals that each has had, where there are any."""
    if not execution_ids:
        return {}
    deferrals = ExecutionEvent.objects.filter(execution__in=execution_ids, event="defer")
    counted = deferrals.order_by().values_list("execution_id").annotate(n=Count("event"))
    return dict(counted)
