"""From the backlog to a worker: choose one, record the choice, dispatch."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Q

from orchestrator.core import clock, fleet
from orchestrator.core.executions import dispatching, unloaded
from orchestrator.core.executions.attempts import end_attempts, move
from orchestrator.core.executions.dispatching import BROKER_PAUSE, FULL, Dispatch, start_by
from orchestrator.core.models import Action, Execution
from orchestrator.core.reasons import Reason
from orchestrator.core.state_machine import Move
from orchestrator.core.states import ExecutionStatus

log = structlog.get_logger(__name__)

READERS_DIFFER_BY = timedelta(milliseconds=250)
"""On a busy machine, the process that accepted an execution and the one that noted the loss of a
worker may have read the database's clock this far apart."""

WAIT_FOR_WORKER = timedelta(seconds=2)
"""The interval at which executions that wait for an eligible worker are looked at again."""


def schedule(
    execution_ids: Sequence[UUID],
    *,
    placement: fleet.Placement,
    now: datetime,
    actor: str,
    redelivered: bool = False,
) -> bool:
    """Give these executions to workers; returns True if some had to stay in the backlog.

    If no worker is eligible, an execution is rejected or waits, as its action says. If all eligible
    workers are full, it stays as it is, and `schedule_backlog` places it later. `redelivered`: an
    executor may have died between its commit and its publish, so executions that are already
    scheduled are dispatched again; only one of the two messages passes the claim.
    """
    wanted = Execution.objects.filter(pk__in=execution_ids).without_contents()
    if redelivered:
        dispatching.redispatch(wanted.unclaimed(now).with_actions(), now=now, actor=actor)
    placement.refresh(now=now)
    free = placement.free()
    if placement.seats and len(execution_ids) > free:
        # most would be read for nothing: the backlog knows which executions come first
        return not free or schedule_backlog(placement=placement, now=now, actor=actor, limit=free)
    ready = wanted.backlog(now).with_actions()
    return _place(ready, placement=placement, now=now, actor=actor)


def schedule_backlog(*, placement: fleet.Placement, now: datetime, actor: str, limit: int) -> bool:
    """Give waiting executions to workers with room; returns True if more may be waiting.

    Finds executions without a message: it was lost, the broker was down, or a retry is due.
    """
    placement.refresh(now=now)
    room = placement.room()
    choosable = Q(action__runtime__in=[runtime for runtime, free in room.items() if free > 0])
    hopeless = ~Q(action__runtime__in=list(room))
    # no more than there is room for: an execution that is locked and not placed delays those behind
    # it
    limit = min(limit, max(room.values(), default=0) or limit)
    backlog = Execution.objects.backlog(now).without_contents()
    with transaction.atomic():
        # a worker is kept empty for the suspect: it comes before all others
        suspects = [placement.suspect] if placement.suspect else []
        waiting = [
            *backlog.filter(pk__in=suspects).locked_for_batch(1).with_actions(),
            *backlog.filter(choosable | hopeless | Q(pinned_worker__isnull=False))
            .exclude(pk__in=suspects)
            .locked_for_batch(limit)
            .with_actions(),
        ]
        postponed = _place(waiting, placement=placement, now=now, actor=actor, postpone=True)
    return postponed or len(waiting) == limit


def _place(
    executions: Sequence[Execution],
    *,
    placement: fleet.Placement,
    now: datetime,
    actor: str,
    postpone: bool = False,
) -> bool:
    """Give these to workers; returns True if all workers were full for some.

    1. Choose a worker for each.
    2. Record the choices: an execution that lost a race is not dispatched.
    3. With `postpone`, put off those whose workers are all full, so that others have their turn.
    4. Reject those that no worker can run, or let them wait.
    5. After the commit, dispatch.
    """
    choices = _choose(executions, placement=placement, now=now)
    assignments = [_assignment(choice, now) for choice in choices.chosen]
    moved = Execution.objects.transition_many("schedule", assignments, now=now, actor=actor)
    if postpone:
        _put_off(choices.full, now=now)
    for what, group in choices.without.items():
        _without_worker(group, what, now=now, actor=actor)
    dispatches = [choice for choice in choices.chosen if choice.execution.pk in moved]
    transaction.on_commit(partial(dispatching.dispatch, dispatches, now=now, actor=actor))
    return bool(choices.full)


@dataclass(frozen=True)
class _Choices:
    """The outcome of choosing, for each of a batch of executions."""

    chosen: list[Dispatch] = field(default_factory=list)
    """Those that got a worker, each at the attempt that begins with it."""
    full: list[UUID] = field(default_factory=list)
    """Those whose eligible workers are all full."""
    without: dict[str, list[Execution]] = field(default_factory=lambda: defaultdict(list))
    """Those that no worker can run, by what was missing."""


def _choose(
    executions: Sequence[Execution], *, placement: fleet.Placement, now: datetime
) -> _Choices:
    began = time.monotonic()
    if unloaded.are_among(executions):
        # since then their worker's row says that it lacks their code
        placement.refresh(now=now, older_than_seconds=0.0)
    placement.refresh(now=now)
    choices = _Choices()
    for execution in executions:
        try:
            worker_id = _pick(execution, placement=placement, now=now, began=began)
        except fleet.FleetBusy:
            choices.full.append(execution.pk)
        except fleet.NoWorkerAvailable as missing:
            choices.without[str(missing)].append(execution)
        else:
            choices.chosen.append(Dispatch(execution, execution.attempt + 1, worker_id))
    return choices


def _put_off(execution_ids: Sequence[UUID], *, now: datetime) -> None:
    """Let these wait before they are looked at again."""
    if execution_ids:
        waiting = Execution.objects.filter(pk__in=execution_ids).backlog(now)
        waiting.update(next_retry_at=now + BROKER_PAUSE, wait_reason=FULL)


def _pick(execution: Execution, *, placement: fleet.Placement, now: datetime, began: float) -> int:
    """A worker for this execution. Raises NoWorkerAvailable and FleetBusy."""

    def pick() -> int:
        return placement.pick(
            runtime=execution.action.runtime,
            selector=execution.wanted_labels,
            code=execution.needed_code,
            isolation=execution.needed_isolation,
            pinned=execution.pinned_worker_id,
            avoid=execution.worker_id,
            suspect=execution.pk if execution.is_suspect else None,
            now=now,
        )

    try:
        return pick()
    except fleet.NoWorkerAvailable:
        # an old view may cost balance but must not end an execution: a worker may just have
        # registered
        placement.refresh(now=now, older_than_seconds=time.monotonic() - began)
        return pick()


def _assignment(choice: Dispatch, now: datetime) -> Move:
    return move(
        choice.execution,
        worker=choice.worker_id,
        start_by=start_by(choice.execution, now),
        next_retry_at=None,
        wait_reason="",
    )


def _without_worker(
    executions: Sequence[Execution], what: str, *, now: datetime, actor: str
) -> None:
    """Reject executions that no worker can run, or let them wait, as each action says.

    An execution that was accepted while there was a worker for it survives a short absence of the
    fleet, such as a restart of its only worker. That depends on the execution alone, not on which
    executor looks at it first.
    """
    waits = [e for e in executions if e.action.on_no_worker == Action.OnNoWorker.WAIT]
    others = [e for e in executions if e.action.on_no_worker != Action.OnNoWorker.WAIT]
    patient = _may_still_have_a_worker(others, now) if others else set()
    wait = [*waits, *(execution for execution in others if execution.pk in patient)]
    reject = [execution for execution in others if execution.pk not in patient]
    again_at = now + WAIT_FOR_WORKER
    Execution.objects.transition_many(
        "wait",
        [
            move(e, wait_reason=what[:200], next_retry_at=again_at)
            for e in wait
            if e.status == ExecutionStatus.REQUESTED
        ],
        now=now,
        actor=actor,
    )
    already = [e.pk for e in wait if e.status == ExecutionStatus.SCHEDULING]
    Execution.objects.filter(pk__in=already).backlog(now).update_unheld(
        wait_reason=what[:200], next_retry_at=again_at
    )
    end_attempts(
        reject, reason=Reason.NO_WORKER_AVAILABLE, detail=what, failed_by="executor", now=now
    )


def _may_still_have_a_worker(executions: Sequence[Execution], now: datetime) -> set[UUID]:
    """The ids of those that had a worker when they were accepted, and until a moment ago."""
    # just after the clock was set, nobody can tell which heartbeats came in time
    if not fleet.clock_is_trusted(clock.asked_now()):
        return {execution.pk for execution in executions}
    needs = {
        execution.pk: fleet.Need.of_execution(execution)
        for execution in executions
        if execution.pinned_worker_id is None
    }
    present_until = {need: fleet.present_until(need, now=now) for need in set(needs.values())}
    grace = timedelta(seconds=settings.MUSTER.no_worker_grace_seconds)
    accepted = Execution.objects.filter(pk__in=needs).values_list("pk", "created_at")
    return {
        pk
        for pk, accepted_at in accepted
        if (until := present_until[needs[pk]]) is not None
        # if accepted after `now` was read, it may be newer than the last sign of a present worker
        and (until >= now or accepted_at < until + READERS_DIFFER_BY)
        and now - until < grace
    }


def note_completed(execution_ids: Sequence[UUID], *, placement: fleet.Placement) -> int:
    """Free the places of executions that ended, and log how many ended in which way.

    Returns how many places became free. Safe to run twice: placement reads the truth again
    each second.
    """
    ends = Execution.objects.filter(pk__in=execution_ids, ended_at__isnull=False).values_list(
        "worker_id", "action_ref", "status", "reason"
    )
    freed = 0
    counts: Counter[tuple[str, str, str]] = Counter()
    for worker_id, action_ref, status, reason in ends:
        counts[action_ref, status, reason] += 1
        if worker_id is not None:
            placement.finished(worker_id)
            freed += 1
    for (action_ref, status, reason), number in counts.items():
        log.info("executions ended", action=action_ref, status=status, reason=reason, n=number)
    return freed
