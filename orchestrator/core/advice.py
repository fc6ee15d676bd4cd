"""What the last days say of an action's waits and time limits, and what hosts of workers lack.

The rule, for both waits and time limits: two to five times as long as the action typically runs,
and never under two minutes. A time limit is also never shorter than the longest run that came to a
good end.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings

from orchestrator.core.models import Action, Execution, Pack, Worker
from orchestrator.core.models.catalog import longest_wait_ms
from orchestrator.core.reasons import Reason
from orchestrator.core.states import ExecutionStatus

SAMPLE_SIZE = 1_000
"""Newest executions of an action that are looked at: what happened last counts."""

EXPIRED_SAMPLE_SIZE = 100
LEAST_SECONDS = 120.0
LEAST_TIMES, MOST_TIMES = 2, 5

EXPIRED = (Reason.QUEUE_TTL_EXPIRED.value, Reason.SCHEDULED_TIMEOUT.value)


@dataclass(frozen=True)
class Limit:
    """A limit as it is, and between what the rule would have it. Seconds."""

    now: float
    least: float
    most: float

    @property
    def verdict(self) -> str:
        """`short`, `long`, or `fits`."""
        if self.now < self.least:
            return "short"
        return "long" if self.now > self.most else "fits"

    @property
    def advised(self) -> float:
        """The nearest value that the rule allows."""
        return min(max(self.now, self.least), self.most)


@dataclass(frozen=True)
class Advice:
    """What is said of one action."""

    action_ref: str
    runs: int
    """Runs that completed, of the newest executions: what all that follows rests on."""
    typical_seconds: float
    """Half of them were shorter."""
    slowest_seconds: float
    wait: Limit
    """Longest wait for a worker: the TTL in its queue."""
    run: Limit
    """Longest run: the time limit."""
    expired: int
    """Executions that ended because no worker took them in time."""
    would_have_run: int
    """Those of the newest 100 of them whose worker took other work up soon enough, had they waited
    as long as the rule allows."""


@dataclass(frozen=True)
class Lack:
    """Code that a worker's host lacks. The worker gets nothing that needs it."""

    worker: str
    host: str
    name: str
    """Of the pack, or of the only action of it whose code is missing."""
    why: str
    pack_path: str
    """Where the pack's folder has to be."""


def lacks() -> list[Lack]:
    """What the workers that are up lack, by worker."""
    paths = dict(Pack.objects.values_list("name", "path"))
    return [
        Lack(worker.name, worker.host, name, why, paths.get(name.partition(".")[0], ""))
        for worker in Worker.objects.lacking_code().order_by("name")
        for name, why in worker.missing_code.items()
    ]


def advise(*, days: float, now: datetime) -> list[Advice]:
    """Advice for every enabled action that completed in the last days; none for the others."""
    first = _first_id(now - timedelta(days=days))
    actions = Action.objects.filter(enabled=True).order_by("ref")
    return [advice for action in actions if (advice := _advise(action, first))]


def _advise(action: Action, first: UUID) -> Advice | None:
    newest = Execution.objects.filter(action_ref=action.ref, pk__gte=first).order_by("-pk")
    sample = list(newest.defer("parameters", "result")[:SAMPLE_SIZE])
    seconds = [_run_seconds(e) for e in sample if e.status == ExecutionStatus.COMPLETED]
    if not seconds:
        return None
    typical, slowest = statistics.median(seconds), max(seconds)
    least, most = _range(typical)
    wait_ms = longest_wait_ms(action.queue_ttl_ms, action.scheduled_timeout_seconds)
    expired = [e for e in sample if e.reason in EXPIRED and e.ended_at]
    return Advice(
        action_ref=action.ref,
        runs=len(seconds),
        typical_seconds=typical,
        slowest_seconds=slowest,
        wait=Limit(wait_ms / 1000, least, most),
        run=Limit(
            action.timeout_seconds or settings.MUSTER.default_timeout_seconds,
            max(least, slowest),
            max(most, slowest),
        ),
        expired=len(expired),
        would_have_run=_count_would_have_run(expired[:EXPIRED_SAMPLE_SIZE], wait_seconds=most),
    )


def _range(typical_seconds: float) -> tuple[float, float]:
    return (
        max(LEAST_SECONDS, LEAST_TIMES * typical_seconds),
        max(LEAST_SECONDS, MOST_TIMES * typical_seconds),
    )


def _run_seconds(execution: Execution) -> float:
    assert execution.started_at is not None
    assert execution.ended_at is not None
    return (execution.ended_at - execution.started_at).total_seconds()


def _count_would_have_run(expired: Sequence[Execution], *, wait_seconds: float) -> int:
    """How many a longer wait would have saved: their worker claimed something after they had
    expired, and before they would have had to."""
    count = 0
    for execution in expired:
        assert execution.scheduled_at is not None
        assert execution.worker_id is not None
        until = execution.scheduled_at + timedelta(seconds=wait_seconds)
        taken = Execution.objects.filter(
            pk__gte=_first_id(execution.created_at - timedelta(days=1)),
            pk__lt=_first_id(until),
            worker_id=execution.worker_id,
            started_at__gt=execution.ended_at,
            started_at__lte=until,
        )
        count += taken.exists()
    return count


def _first_id(at: datetime) -> UUID:
    """The lowest id that an execution of that moment has: ids are in order of time."""
    return UUID(int=int(at.timestamp() * 1000) << 80)
