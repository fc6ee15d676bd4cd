"""Detection of stuck tasks: find those over a limit, investigate them, move them to `error`."""

from __future__ import annotations

import enum
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from uuid import UUID

import structlog
from django.conf import settings
from django.db import transaction

from orchestrator.core import clock, investigations
from orchestrator.core.executions.logged import MOST_LINES
from orchestrator.core.models import DLQEntry
from orchestrator.core.state_machine import Move, TransitionConflict
from orchestrator.workflows import metrics, snapshots
from orchestrator.workflows.engine import investigating
from orchestrator.workflows.models import StalenessDefault, Task, TaskLimit
from orchestrator.workflows.models.staleness import DURATION, Overstepped

log = structlog.get_logger(__name__)

ACTOR = "staleness_detection"

SHOWN_MINUTES = 0.05
"""Less than this is 0.0 with one digit."""


class Action(enum.StrEnum):
    """An outcome of detection for one task. `would_...` are those of a dry run."""

    TRANSITIONED_TO_DLQ_AND_ERROR = "transitioned_to_dlq_and_error"
    MOVED_TO_DLQ_ONLY = "moved_to_dlq_only"
    TRANSITIONED_TO_ERROR_ONLY = "transitioned_to_error_only"
    LEFT_ALONE = "left_alone"
    """Somebody else opened an entry for it at the same time."""
    WOULD_TRANSITION_TO_DLQ_AND_ERROR = "would_transition_to_dlq_and_error"
    WOULD_MOVE_TO_DLQ_ONLY = "would_move_to_dlq_only"
    WOULD_TRANSITION_TO_ERROR_ONLY = "would_transition_to_error_only"


DONE: Mapping[tuple[bool, bool], Action] = {
    (True, True): Action.TRANSITIONED_TO_DLQ_AND_ERROR,
    (True, False): Action.MOVED_TO_DLQ_ONLY,
    (False, True): Action.TRANSITIONED_TO_ERROR_ONLY,
    (False, False): Action.LEFT_ALONE,
}
"""The action by `moved_to_dlq` and `transition_success`."""

FORESEEN: Mapping[tuple[bool, bool], Action] = {
    (True, True): Action.WOULD_TRANSITION_TO_DLQ_AND_ERROR,
    (True, False): Action.WOULD_MOVE_TO_DLQ_ONLY,
    (False, True): Action.WOULD_TRANSITION_TO_ERROR_ONLY,
}


@dataclass(frozen=True, kw_only=True)
class StaleTask:
    """A task over a limit as detection found it, and what was done with it."""

    task_uuid: UUID
    namespace_name: str
    task_name: str
    template_version: str
    current_state: str
    """Before the action."""
    limit_name: str
    """The limit that it was over first: a state, or `duration`."""
    time_in_state_minutes: float
    task_age_minutes: float
    staleness_threshold_minutes: float
    """Of that limit: of the time in the state, or of the age if it is `duration`."""
    overdue_minutes: float
    detail: str
    """All limits that it is over, as its entry says it."""
    action_taken: Action
    moved_to_dlq: bool
    transition_success: bool


@dataclass(frozen=True)
class Detected:
    """The outcome of one run."""

    tasks: tuple[StaleTask, ...] = ()

    @property
    def stale(self) -> tuple[UUID, ...]:
        return tuple(task.task_uuid for task in self.tasks)

    @property
    def opened(self) -> tuple[UUID, ...]:
        """Those that got an entry."""
        return tuple(task.task_uuid for task in self.tasks if task.moved_to_dlq)

    @property
    def moved(self) -> tuple[UUID, ...]:
        """Those that were moved to `error`."""
        return tuple(task.task_uuid for task in self.tasks if task.transition_success)


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
    def first(self) -> Overstepped:
        """The limit that it was over first."""
        return min(self.limits, key=lambda limit: _due_at(self.task, limit))

    @property
    def due_at(self) -> datetime:
        """The time at which it was over the first of its limits."""
        return _due_at(self.task, self.first)

    def detail(self, now: datetime) -> str:
        return "; ".join(
            f"{'its age is' if limit.limit_name == DURATION else f'{limit.limit_name} for'} "
            f"{_minutes(now - _since(self.task, limit)):.1f} min{self._answers(limit)}, "
            f"allowed are {limit.limit_minutes:g}"
            for limit in self.limits
        )

    def _answers(self, limit: Overstepped) -> str:
        """The time that people took, if this limit is one of the age."""
        took = _minutes(limit.counts_from - self.task.created_at)
        if limit.limit_name != DURATION or took < SHOWN_MINUTES:
            return ""
        return f" without {took:.1f} of waiting for answers"

    def foreseen(self, now: datetime) -> StaleTask:
        """The task, and the action of the next detection."""
        return self._found(now, FORESEEN[self.opens_entry, self.moves_to_error])

    def dealt_with(self, now: datetime, *, opened: bool, moved: bool) -> StaleTask:
        """The task, and the action that was taken."""
        return self._found(now, DONE[opened, moved], opened=opened, moved=moved)

    def _found(
        self, now: datetime, action: Action, *, opened: bool = False, moved: bool = False
    ) -> StaleTask:
        task, template, first = self.task, self.task.template, self.first
        return StaleTask(
            task_uuid=task.pk,
            namespace_name=template.namespace,
            task_name=template.name,
            template_version=template.version,
            current_state=task.state,
            limit_name=first.limit_name,
            time_in_state_minutes=max(0.0, _minutes(now - task.clock_started_at)),
            task_age_minutes=_minutes(now - task.created_at),
            staleness_threshold_minutes=first.limit_minutes,
            overdue_minutes=_minutes(now - self.due_at),
            detail=self.detail(now),
            action_taken=action,
            moved_to_dlq=opened,
            transition_success=moved,
        )


def detect_stale(now: datetime, batch_size: int | None = None, dry_run: bool = False) -> Detected:
    """Find tasks over a limit, at most `batch_size` (the setting's), and act as their templates
    say: open an entry, move them to `error`, or both in one transaction.

    Tasks that have a pending entry are left alone, unless they have gone on since that was opened
    for want of a worker. Those that another session holds are left for a
    later run, and all are if the clock was set while this one waited: nobody knows then whether
    they are over. With `dry_run` nothing is done or counted.
    """
    moment = clock.Running(now)
    limit: int = batch_size or settings.MUSTER.staleness_batch_size
    if dry_run:
        return Detected(tuple(one.foreseen(now) for one in foresee(now, limit)))
    with transaction.atomic():
        StalenessDefault.objects.follow_settings()
        overstepped = TaskLimit.objects.overstepped(now=now, limit=limit, lock=True)
        if overstepped and moment.was_set():
            return Detected()
        at = moment()
        stale = _read(overstepped, now=at)
        detected = _settle(stale, now=at)
    _log(detected.tasks)
    return detected


def detect_all(moment: Callable[[], datetime]) -> Iterator[Detected]:
    """Detect batch by batch until none is left; `moment` returns the time of each batch."""
    while True:
        detected = detect_stale(moment())
        yield detected
        is_last = len(detected.tasks) < settings.MUSTER.staleness_batch_size
        if is_last or not (detected.opened or detected.moved):
            return


def foresee(now: datetime, batch_size: int) -> list[Stale]:
    """The tasks that a run of `detect_stale` would find now, and what it would do with each, the
    longest overdue first. Nothing is done."""
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
    return applies and _due_at(task, over) <= now


def _since(task: Task, over: Overstepped) -> datetime:
    """The time from which this limit counts."""
    if over.limit_name == DURATION:
        return over.counts_from
    return max(over.counts_from, task.clock_started_at)


def _due_at(task: Task, over: Overstepped) -> datetime:
    """The time from which it was over this limit."""
    return _since(task, over) + timedelta(minutes=over.limit_minutes)


def _minutes(duration: timedelta) -> float:
    return duration.total_seconds() / 60


def _log(tasks: Sequence[StaleTask]) -> None:
    """Log a line for each task, or for the first of very many."""
    for task in tasks[:MOST_LINES]:
        fields = asdict(task)
        log.warning("stale task", task_id=str(fields.pop("task_uuid")), **fields)
    if len(tasks) > MOST_LINES:
        log.warning("more lines left out", line="stale task", n=len(tasks) - MOST_LINES)


def _settle(stale: Sequence[Stale], *, now: datetime) -> Detected:
    wanted = [one for one in stale if one.opens_entry]
    cause = DLQEntry.Reason.STALENESS_TIMEOUT
    investigating.give_way([one.task.pk for one in wanted], to=cause, now=now, actor=ACTOR)
    entries = investigations.open_for(
        snapshots.subjects([one.task for one in wanted], now=now),
        reason=cause,
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
        reason=cause,
    )
    if len(moved) != len(moving):
        # impossible, as they are locked; but an entry without its move must not be kept
        raise TransitionConflict("A stale task moved while it was held")
    metrics.STALE_DETECTED.add(Counter(one.limits[0].limit_name for one in dealt_with))
    metrics.STALE_TO_ERROR.add(Counter(one.limits[0].limit_name for one in moving))
    return Detected(
        tuple(
            one.dealt_with(now, opened=one.task.pk in opened, moved=one.task.pk in moved)
            for one in stale
        )
    )
