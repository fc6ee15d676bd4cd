"""Advice on actions' waits and time limits from the last days, and on code that hosts lack.

The rule, for both waits and time limits: two to five times as long as the action typically runs,
and never under two minutes. A time limit is also never shorter than the longest run that completed.
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
from orchestrator.core.models.time_ordered import uuid7_floor
from orchestrator.core.reasons import Reason
from orchestrator.core.states import ExecutionStatus

SAMPLE_SIZE = 1_000
"""The number of newest executions of an action that are read."""

EXPIRED_SAMPLE_SIZE = 100
LEAST_SECONDS = 120.0
LEAST_TIMES, MOST_TIMES = 2, 5

EXPIRED = (Reason.QUEUE_TTL_EXPIRED.value, Reason.SCHEDULED_TIMEOUT.value)


@dataclass(frozen=True)
class Limit:
    """A present limit, and the range that the rule allows. Seconds."""

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
    """Advice on one action."""

    action_ref: str
    runs: int
    """Completed runs among the newest executions: the basis of all other numbers."""
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
    """Those of the newest 100 of them whose worker started other work within the longest wait that
    the rule allows."""
    sets_wait: bool
    """The pack sets the longest wait; otherwise it is the installation's, which is for all."""
    sets_run: bool
    """The pack sets the time limit."""

    @property
    def wait_is_out_of_line(self) -> bool:
        """It is too short, or its pack made it too long."""
        return self.wait.verdict == "short" or (self.sets_wait and self.wait.verdict == "long")

    @property
    def run_is_out_of_line(self) -> bool:
        """It is too short for runs that there were, or its pack made it too long."""
        is_short = self.run.now < max(LEAST_TIMES * self.typical_seconds, self.slowest_seconds)
        return is_short or (self.sets_run and self.run.verdict == "long")


@dataclass(frozen=True)
class Lack:
    """Code that a worker's host lacks. The worker gets no work that needs it."""

    worker: str
    host: str
    name: str
    """The pack, or the single action of it whose code is missing."""
    why: str
    pack_path: str
    """The place where the pack's folder has to be."""


def lacks() -> list[Lack]:
    """The code that workers lack which are up, by worker."""
    paths = dict(Pack.objects.values_list("name", "path"))
    return [
        Lack(worker.name, worker.host, name, why, paths.get(name.partition(".")[0], ""))
        for worker in Worker.objects.lacking_code().order_by("name")
        for name, why in worker.missing_code.items()
    ]


def advise(*, days: float, now: datetime) -> list[Advice]:
    """Advise on every enabled action that completed in the last days, and on no others."""
    first = uuid7_floor(now - timedelta(days=days))
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
        sets_wait=bool(action.queue_ttl_ms or action.scheduled_timeout_seconds),
        sets_run=action.timeout_seconds is not None,
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
    """Count the executions that a longer wait would have saved: their worker claimed something
    after they had expired, and within that wait."""
    count = 0
    for execution in expired:
        assert execution.scheduled_at is not None
        assert execution.worker_id is not None
        until = execution.scheduled_at + timedelta(seconds=wait_seconds)
        taken = Execution.objects.filter(
            pk__gte=uuid7_floor(execution.created_at - timedelta(days=1)),
            pk__lt=uuid7_floor(until),
            worker_id=execution.worker_id,
            started_at__gt=execution.ended_at,
            started_at__lte=until,
        )
        count += taken.exists()
    return count
