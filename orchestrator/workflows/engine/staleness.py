"""Detection of stuck tasks: find those over a limit, investigate them, move them to `error`."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import structlog
from django.conf import settings
from django.db import transaction

from orchestrator.core import investigations
from orchestrator.core.models import DLQEntry
from orchestrator.core.state_machine import Move, TransitionConflict
from orchestrator.workflows import metrics, snapshots
from orchestrator.workflows.models import StalenessDefault, Task, TaskLimit
from orchestrator.workflows.models.staleness import DURATION, Overstepped

log = structlog.get_logger(__name__)

ACTOR = "staleness_detection"


@dataclass(frozen=True)
class Detected:
    """The outcome of one run, as ids of tasks."""

    stale: tuple[UUID, ...] = ()
    opened: tuple[UUID, ...] = ()
    moved: tuple[UUID, ...] = ()


@dataclass(frozen=True)
class Stale:
    """A task over one or more limits; every action that one of its limits asks for is taken."""

    task: Task
    limits: Sequence[Overstepped]

    @property
    def opens_entry(self) -> bool:
        return any(limit.opens_entry for limit in self.limits)

    @property
    def moves_to_error(self) -> bool:
        return any(limit.moves_to_error for limit in self.limits)

    @property
    def due_at(self) -> datetime:
        """The time at which it was over the first of its limits."""
        return min(
            _since(self.task, limit) + timedelta(minutes=limit.limit_minutes)
            for limit in self.limits
        )

    def detail(self, now: datetime) -> str:
        return "; ".join(
            f"{'its age is' if limit.limit_name == DURATION else f'{limit.limit_name} for'} "
            f"{(now - _since(self.task, limit)).total_seconds() / 60:.1f} min, "
            f"allowed are {limit.limit_minutes:g}"
            for limit in self.limits
        )


def detect_stale(now: datetime, batch_size: int | None = None, dry_run: bool = False) -> Detected:
    """Find tasks over a limit, at most `batch_size` (the setting's), and act as their templates
    say: open an entry, move them to `error`, or both in one transaction.

    Tasks that have a pending entry are left alone. Those that another session holds are left for a
    later run. With `dry_run` nothing is done or counted.
    """
    began = time.monotonic()
    limit: int = batch_size or settings.MUSTER.staleness_batch_size
    if dry_run:
        return Detected(stale=tuple(one.task.pk for one in foresee(now, limit)))
    with transaction.atomic():
        StalenessDefault.objects.follow_settings()
        stale = _read(TaskLimit.objects.overstepped(now=now, limit=limit, lock=True), now=now)
        detected = _settle(stale, now=now)
        metrics.DETECTION_RUNS.add({"": 1})
        metrics.DETECTION_SECONDS.observe([("", time.monotonic() - began)])
    if stale:
        log.warning(
            "stale tasks", found=len(stale), opened=len(detected.opened), moved=len(detected.moved)
        )
    return detected


def foresee(now: datetime, batch_size: int) -> list[Stale]:
    """What a run of `detect_stale` would find now, and do with each, the longest overdue first.
    Nothing is done."""
    found = _read(TaskLimit.objects.overstepped(now=now, limit=batch_size, lock=False), now=now)
    return sorted(found, key=lambda one: one.due_at)


def _read(overstepped: Sequence[Overstepped], *, now: datetime) -> list[Stale]:
    """Read the tasks, now that they may be locked: one may have moved before that."""
    limits: Mapping[UUID, list[Overstepped]] = defaultdict(list)
    for over in overstepped:
        limits[over.task_id].append(over)
    tasks = Task.objects.open().filter(pk__in=limits).select_related("template").defer("context")
    read = [
        Stale(task, [over for over in limits[task.pk] if _is_over(task, over, now)])
        for task in tasks
    ]
    return [stale for stale in read if stale.limits]


def _is_over(task: Task, over: Overstepped, now: datetime) -> bool:
    applies = over.limit_name in (DURATION, task.state)
    return applies and _since(task, over) <= now - timedelta(minutes=over.limit_minutes)


def _since(task: Task, over: Overstepped) -> datetime:
    """The time from which this limit counts."""
    return task.created_at if over.limit_name == DURATION else task.clock_started_at


def _settle(stale: Sequence[Stale], *, now: datetime) -> Detected:
    wanted = [one for one in stale if one.opens_entry]
    entries = investigations.open_for(
        snapshots.subjects([one.task for one in wanted], now=now),
        reason=DLQEntry.Reason.STALENESS_TIMEOUT,
        now=now,
        actor=ACTOR,
        detail={one.task.pk: one.detail(now) for one in wanted},
    )
    opened = {entry.subject_id for entry in entries}
    # a task that just got an entry from somebody else is already handled: nothing is done for it
    dealt_with = [one for one in stale if one.task.pk in opened or not one.opens_entry]
    moving = [one for one in dealt_with if one.moves_to_error]
    moved = Task.objects.transition_many(
        "expire",
        [Move(one.task.pk, one.task.state, one.task.fence) for one in moving],
        now=now,
        actor=ACTOR,
        reason=DLQEntry.Reason.STALENESS_TIMEOUT,
    )
    if len(moved) != len(moving):
        # impossible, as they are locked; but an entry without its move must not be kept
        raise TransitionConflict("A stale task moved while it was held")
    metrics.STALE_DETECTED.add(Counter(one.limits[0].limit_name for one in dealt_with))
    metrics.STALE_TO_ERROR.add(Counter(one.limits[0].limit_name for one in moving))
    return Detected(
        stale=tuple(one.task.pk for one in stale),
        opened=tuple(id for id in opened if id),
        moved=tuple(moved),
    )
