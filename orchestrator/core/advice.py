"""Advice on actions' waits and time limits from the last days, and on code that hosts lack.

The rule, for both waits and time limits: two to five times as long as the action typically runs,
and never under two minutes. A time limit is also never shorter than the longest run that completed.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from django.conf import settings
from django.db.models import QuerySet

from orchestrator.core import words
from orchestrator.core.models import Action, Execution, Pack, Worker
from orchestrator.core.models.catalog import longest_wait_ms
from orchestrator.core.models.time_ordered import uuid7_floor
from orchestrator.core.reasons import Reason
from orchestrator.core.states import TERMINAL, ExecutionStatus

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

    @property
    def allowed(self) -> str:
        """The range of the rule, in words."""
        least, most = words.span(self.least), words.span(self.most)
        return least if least == most else f"{least} to {most}"


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


@dataclass(frozen=True)
class Change:
    """A limit that is out of line: its value, the better one, and why."""

    key: str
    """As the pack's file names it."""
    now: str
    to: str
    why: str


def changes(each: Advice) -> Iterator[Change]:
    """The limits to change."""
    runs = f"{each.runs:,} {'run' if each.runs == 1 else 'runs'}"
    took = f"{runs} took {words.span(each.typical_seconds)}"
    if each.runs > 1:
        took += f" and at most {words.span(each.slowest_seconds)}"
    if each.wait_is_out_of_line or each.would_have_run:
        advised_ms = round(each.wait.advised * 1000)
        why = f"{took}: {each.wait.verdict}, the rule gives {each.wait.allowed}"
        if advised_ms > (queue_ttl_ms := settings.MUSTER.worker_queue_ttl_ms):
            why += f"; raise MUSTER_WORKER_QUEUE_TTL_MS, now {queue_ttl_ms}, too"
        if each.would_have_run:
            why += (
                f"; {each.would_have_run} of {each.expired} that expired would have run within "
                f"{words.span(each.wait.most)}"
            )
        yield Change("queue_ttl_ms", f"{each.wait.now * 1000:.0f}", str(advised_ms), why)
    if each.run_is_out_of_line:
        why = f"{took}: {each.run.verdict}, the rule gives {each.run.allowed}"
        yield Change("timeout_seconds", f"{each.run.now:g}", f"{each.run.advised:.0f}", why)


@dataclass(frozen=True)
class Record:
    """The record of an action: how its newest executions ended."""

    looked_at: int
    """At most SAMPLE_SIZE."""
    ended: Mapping[str, int]
    """By status."""
    median_seconds: float | None
    """Of the runs that completed; None without one."""
    p95_seconds: float | None

    @property
    def success_rate(self) -> float | None:
        """Completed, of those that ended and were not cancelled; None without one."""
        completed = self.ended.get(ExecutionStatus.COMPLETED, 0)
        counted = sum(self.ended.values()) - self.ended.get(ExecutionStatus.CANCELLED, 0)
        return completed / counted if counted else None


class Run(NamedTuple):
    """The columns that are read of an execution of an action."""

    status: str
    started_at: datetime | None
    ended_at: datetime | None


def newest_runs(action_ref: str, *, days: float, now: datetime) -> list[Run]:
    """The newest executions of an action in the last days, for `record` and `of`: one query."""
    rows = _newest(action_ref, now - timedelta(days=days))
    return [Run(*row) for row in rows.values_list(*Run._fields)[:SAMPLE_SIZE]]


def record(runs: Sequence[Run]) -> Record:
    """The record of an action, from its newest executions."""
    took = sorted(_seconds(runs))
    return Record(
        looked_at=len(runs),
        ended=Counter(run.status for run in runs if run.status in TERMINAL),
        median_seconds=statistics.median(took) if took else None,
        p95_seconds=took[math.ceil(0.95 * len(took)) - 1] if took else None,
    )


def of(action: Action, runs: Sequence[Run]) -> Advice | None:
    """Advise on one action, from its newest executions: nothing is said of those that expired."""
    return _advise(action, runs, expired=())


def advise(*, days: float, now: datetime) -> list[Advice]:
    """Advise on every enabled action that completed in the last days, and on no others."""
    since = now - timedelta(days=days)
    found = []
    for action in Action.objects.filter(enabled=True).order_by("ref"):
        sample = list(_newest(action.ref, since).defer("parameters", "result")[:SAMPLE_SIZE])
        expired = [each for each in sample if each.reason in EXPIRED and each.ended_at]
        if (advice := _advise(action, sample, expired)) is not None:
            found.append(advice)
    return found


def _newest(action_ref: str, since: datetime) -> QuerySet[Execution]:
    rows = Execution.objects.filter(action_ref=action_ref, pk__gte=uuid7_floor(since))
    return rows.order_by("-pk")


def _advise(
    action: Action, runs: Iterable[Run | Execution], expired: Sequence[Execution]
) -> Advice | None:
    seconds = list(_seconds(runs))
    if not seconds:
        return None
    typical, slowest = statistics.median(seconds), max(seconds)
    least, most = _range(typical)
    wait_ms = longest_wait_ms(action.queue_ttl_ms, action.scheduled_timeout_seconds)
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


def _seconds(runs: Iterable[Run | Execution]) -> Iterator[float]:
    """The seconds that each took, of those that completed. A question completes without a
    worker."""
    for run in runs:
        if run.status == ExecutionStatus.COMPLETED and run.started_at and run.ended_at:
            yield (run.ended_at - run.started_at).total_seconds()


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
