"""The choice of workers for executions of the backlog, its record, and the dispatch."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction

from orchestrator.core import admission, clock, database, fleet, tracing
from orchestrator.core.executions import dispatching, unloaded
from orchestrator.core.executions.attempts import end_attempts, move
from orchestrator.core.executions.dispatching import BROKER_PAUSE, FULL, Dispatch, start_by
from orchestrator.core.models import Action, Execution
from orchestrator.core.reasons import Reason
from orchestrator.core.state_machine import Move
from orchestrator.core.states import ExecutionStatus

READERS_DIFFER_BY = timedelta(milliseconds=250)
"""On a busy machine, the process that accepted an execution and the one that noted the loss of a
worker may have read the database's clock this far apart."""

LOOK_SECONDS = 0.5
"""For so long a look at a backlog passes what cannot start: the rest has the next look."""

REJECT_SECONDS = LOOK_SECONDS / 2
"""For so long a look reads more of what it rejects; then it passes that, too."""

WAIT_FOR_WORKER = timedelta(seconds=2)
"""The interval at which executions that wait for an eligible worker are looked at again."""


@dataclass(frozen=True)
class Unplaced:
    """Those of a batch that got no worker."""

    full: Sequence[Execution]
    """All workers that may have them are full."""
    waiting: Sequence[Execution]
    """No worker can run them, and they wait for one."""
    rejected: Sequence[Execution]
    """No worker can run them, and they have ended."""

    @property
    def all(self) -> list[Execution]:
        return [*self.full, *self.waiting, *self.rejected]


class Look:
    """A look at a backlog that passes what cannot start: executions whose own workers have no room,
    or are gone, as they are pinned or ask for labels, must not keep those behind them from workers
    that have."""

    def __init__(self) -> None:
        began = time.monotonic()
        self._until, self._rejects_until = began + LOOK_SECONDS, began + REJECT_SECONDS
        self.busy: list[UUID] = []
        """Those that could not start: what asks for the same is to be left out."""

    def goes_on(self, unplaced: Unplaced) -> bool:
        """Note what did not start; returns True if there may be others behind it."""
        now = time.monotonic()
        passed = [*unplaced.full, *unplaced.waiting]
        # what is rejected is gone from the backlog, and the next of its kind can follow it at once
        if now >= self._rejects_until:
            passed += unplaced.rejected
        self.busy += [each.pk for each in passed]
        return bool(unplaced.all) and now < self._until


def place(
    executions: Sequence[Execution],
    *,
    placement: fleet.Placement,
    now: datetime,
    actor: str,
    postpone: bool = False,
) -> Unplaced:
    """Give these to workers; returns those that got none, without those that a limit refused.

    1. Choose a worker for each.
    2. Record the choices, as far as the limits admit them: an execution that lost a race is not
       dispatched.
    3. With `postpone`, put off those whose workers are all full, so that others have their turn.
    4. Reject those that no worker can run, or let them wait.
    5. After the commit, dispatch.
    """
    began_ns = tracing.clock_ns()
    choices = _choose(executions, placement=placement, now=now)
    moved = _record(choices.chosen, placement=placement, now=now, actor=actor)
    if postpone:
        _put_off([each for each in choices.full if _keeps_others(each, placement)], now=now)
    waiting: list[Execution] = []
    rejected: list[Execution] = []
    for what, group in choices.without.items():
        wait, reject = _without_worker(group, what, now=now, actor=actor)
        waiting += wait
        rejected += reject
    dispatches = [choice for choice in choices.chosen if choice.execution.pk in moved]
    given = [(each.key, each.worker_id) for each in dispatches] if began_ns else []
    transaction.on_commit(partial(tracing.scheduled, given, began_ns=began_ns))
    transaction.on_commit(partial(dispatching.dispatch, dispatches, now=now, actor=actor))
    return Unplaced(choices.full, waiting, rejected)


@dataclass(frozen=True)
class _Choices:
    """The outcome of choosing, for each of a batch of executions."""

    chosen: list[Dispatch] = field(default_factory=list)
    """Those that got a worker, each at the attempt that begins with it."""
    full: list[Execution] = field(default_factory=list)
    """Those whose eligible workers are all full."""
    without: dict[str, list[Execution]] = field(default_factory=lambda: defaultdict(list))
    """Those that no worker can run, by what was missing."""


def _choose(
    executions: Sequence[Execution], *, placement: fleet.Placement, now: datetime
) -> _Choices:
    began = time.monotonic()
    placement.heed(unloaded.among(executions), now=now)
    placement.refresh(now=now)
    choices = _Choices()
    for execution in executions:
        try:
            worker_id = _pick(execution, placement=placement, now=now, began=began)
        except fleet.FleetBusy:
            choices.full.append(execution)
        except fleet.NoWorkerAvailable as missing:
            choices.without[str(missing)].append(execution)
        else:
            choices.chosen.append(Dispatch(execution, execution.attempt + 1, worker_id))
    return choices


def _record(
    chosen: Sequence[Dispatch], *, placement: fleet.Placement, now: datetime, actor: str
) -> set[UUID]:
    """Write these choices, as far as the limits admit them; returns the ids that moved."""
    limits = admission.limits()
    if not limits.concern([choice.execution for choice in chosen]):
        return _move(chosen, now=now, actor=actor)
    is_part = connection.in_atomic_block
    with transaction.atomic(savepoint=False):
        if not is_part:
            database.hold_briefly()
        answer = limits.ask([choice.execution for choice in chosen], now=now)
        refused = [choice for choice in chosen if choice.execution.pk in answer.refused]
        admitted = [choice for choice in chosen if choice.execution.pk not in answer.refused]
        moved = _move(admitted, now=now, actor=actor)
        answer.take(moved)
        _refuse([choice.execution for choice in refused], answer.refused, now=now, actor=actor)
    for choice in refused:
        placement.give_back(choice.worker_id, choice.execution.subscription)
    return moved


def screen(executions: Sequence[Execution], *, now: datetime, actor: str) -> int:
    """Let those of these wait that their limits refuse now, and do nothing with the others; returns
    how many. In the caller's transaction."""
    answer = admission.limits().ask(executions, now=now)
    answer.take(())
    refused = [execution for execution in executions if execution.pk in answer.refused]
    _refuse(refused, answer.refused, now=now, actor=actor)
    return len(refused)


def _move(chosen: Sequence[Dispatch], *, now: datetime, actor: str) -> set[UUID]:
    assignments = [_assignment(choice, now) for choice in chosen]
    return Execution.objects.transition_many("schedule", assignments, now=now, actor=actor)


def _refuse(
    executions: Sequence[Execution],
    refusals: Mapping[UUID, admission.Refusal],
    *,
    now: datetime,
    actor: str,
) -> None:
    """Let these wait for their limits, or end those whose limits let nothing wait."""
    waits: dict[UUID, tuple[str, datetime]] = {}
    rejected: dict[str, list[Execution]] = defaultdict(list)
    for execution in executions:
        why, again_at = refusals[execution.pk]
        if again_at is None:
            rejected[why].append(execution)
        else:
            waits[execution.pk] = why, again_at
    _let_wait([e for e in executions if e.pk in waits], waits, now=now, actor=actor)
    for why, group in rejected.items():
        end_attempts(
            group, reason=Reason.POLICY_EXCEEDED, detail=why, failed_by="executor", now=now
        )


def _let_wait(
    executions: Sequence[Execution],
    waits: Mapping[UUID, tuple[str, datetime]],
    *,
    now: datetime,
    actor: str,
) -> None:
    """Let each of these wait for its reason until its time."""
    moves = [
        move(
            execution,
            wait_reason=waits[execution.pk][0][:200],
            next_retry_at=waits[execution.pk][1],
        )
        for execution in executions
        if execution.status == ExecutionStatus.REQUESTED
    ]
    Execution.objects.transition_many("wait", moves, now=now, actor=actor)
    already = {
        execution.pk: (waits[execution.pk][0][:200], waits[execution.pk][1])
        for execution in executions
        if execution.status == ExecutionStatus.SCHEDULING
    }
    if already:
        Execution.objects.backlog(now).postpone(already)


def _keeps_others(execution: Execution, placement: fleet.Placement) -> bool:
    """True if it is full for this one, and others behind it may have their turn. The others of a
    queue have none while its servers are full."""
    return execution.queue is None or placement.queue_room(execution.queue) > 0


def _put_off(executions: Sequence[Execution], *, now: datetime) -> None:
    """Let these wait before they are looked at again."""
    if executions:
        waiting = Execution.objects.filter(pk__in=[each.pk for each in executions]).backlog(now)
        waiting.update(next_retry_at=now + BROKER_PAUSE, wait_reason=FULL)


def _pick(execution: Execution, *, placement: fleet.Placement, now: datetime, began: float) -> int:
    """A worker for this execution. Raises NoWorkerAvailable and FleetBusy."""

    def pick() -> int:
        return placement.pick(
            runtime=execution.action.runtime,
            selector=execution.wanted_labels,
            code=execution.needed_code,
            isolation=execution.needed_isolation,
            queue=execution.subscription,
            lane_key=execution.lane_key,
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
) -> tuple[list[Execution], list[Execution]]:
    """Reject executions that no worker can run, or let them wait, as each action says; returns
    those that wait, and those that are rejected. Those of a queue wait in any case, until their
    deadline: its workers may come later.

    An execution that was accepted while there was a worker for it survives a short absence of the
    fleet, such as a restart of its only worker. That depends on the execution alone, not on which
    executor looks at it first.
    """
    waits: list[Execution] = []
    others: list[Execution] = []
    for execution in executions:
        is_patient = execution.action.on_no_worker == Action.OnNoWorker.WAIT
        (waits if is_patient or execution.queue is not None else others).append(execution)
    patient = _may_still_have_a_worker(others, now) if others else set()
    wait = [*waits, *(execution for execution in others if execution.pk in patient)]
    reject = [execution for execution in others if execution.pk not in patient]
    again_at = now + WAIT_FOR_WORKER
    _let_wait(wait, {each.pk: (what, again_at) for each in wait}, now=now, actor=actor)
    end_attempts(
        reject, reason=Reason.NO_WORKER_AVAILABLE, detail=what, failed_by="executor", now=now
    )
    return wait, reject


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
    since = now - timedelta(seconds=settings.MUSTER.no_worker_grace_seconds)
    present_until = {
        need: fleet.present_until(need, now=now, since=since) for need in set(needs.values())
    }
    accepted = Execution.objects.filter(pk__in=needs).values_list("pk", "created_at")
    return {
        pk
        for pk, accepted_at in accepted
        if (until := present_until[needs[pk]]) is not None
        # if accepted after `now` was read, it may be newer than the last sign of a present worker
        and (until >= now or accepted_at < until + READERS_DIFFER_BY)
    }
