"""From the backlog to a worker: choose, commit, dispatch."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Q

from orchestrator import clock, fleet, investigations, publisher, topology
from orchestrator.declarations import TopologyDiffers
from orchestrator.executions import unloaded
from orchestrator.executions.attempts import end_attempts, move
from orchestrator.models import Action, DLQEntry, Execution, Worker
from orchestrator.reasons import Reason
from orchestrator.state_machine import ExecutionStatus, Move

log = structlog.get_logger(__name__)

BROKER_PAUSE = timedelta(seconds=1)
"""How long what could not be dispatched is left alone before it is tried again."""

UNDECLARABLE_PAUSE = timedelta(seconds=10)
"""The same, where the broker refuses its worker's queue: until somebody does something."""

UNCLAIMED_SECONDS = 10.0
"""A worker with a slot to spare claims within milliseconds of a dispatch."""

FULL = "every worker that could run it holds all that it may: see their capacity"

COMPLAIN_EVERY_SECONDS = 60.0
_complained_at = float("-inf")

READERS_DIFFER_BY = timedelta(milliseconds=250)
"""Who accepted an execution and who noted that a worker went read the database's clock as much
apart, on a busy machine."""

WAIT_FOR_WORKER = timedelta(seconds=2)
"""How often what waits for an eligible worker is looked at again."""


def schedule(
    execution_ids: Sequence[UUID],
    *,
    placement: fleet.Placement,
    now: datetime,
    actor: str,
    redelivered: bool = False,
) -> bool:
    """Give these executions to workers; returns whether some had to stay in the backlog.

    Where no worker is eligible, an execution is rejected or waits, as its action says. Where
    the eligible ones are full it stays as it is, and `schedule_backlog` takes it up.
    `redelivered`: an executor may have died between its commit and its publish, so what is
    scheduled already is dispatched again; the claim lets one of the two messages through.
    """
    wanted = Execution.objects.filter(pk__in=execution_ids).without_contents()
    if redelivered:
        _dispatch(wanted.unclaimed(now).with_actions(), now=now, actor=actor)
    placement.refresh(now=now)
    free = placement.free()
    if placement.seats and len(execution_ids) > free:
        # most would be read in vain: the backlog knows which of all that wait come first
        return not free or schedule_backlog(placement=placement, now=now, actor=actor, limit=free)
    ready = wanted.backlog(now).with_actions()
    return _place(ready, placement=placement, now=now, actor=actor)


def dispatch_again(*, now: datetime, actor: str) -> int:
    """Send once more what was dispatched and is not claimed; returns how many.

    For an executor that begins, or has the broker back: one may have died between its commit
    and its publish, and a broker may have lost what it had. No worker holds more than its window
    of them, and the claim lets one message of an attempt through.
    """
    stuck = Execution.objects.unclaimed(now).without_contents().with_actions()
    size: int = settings.MUSTER.batch_size
    for start in range(0, len(stuck), size):
        _dispatch(stuck[start : start + size], now=now, actor=actor)
    return len(stuck)


def dispatch_unclaimed(*, now: datetime, actor: str) -> int:
    """Send once more what a worker with a slot to spare has not claimed for a while; returns how
    many. Otherwise it would wait for `start_by`.

    One of several executors may have died for good between its commit and its publish, or the
    broker may have lost the message. If neither is so, the claim refuses the second copy. Each
    wait is twice as long as the one before it, so there are never more than a few.
    """
    patience = timedelta(seconds=UNCLAIMED_SECONDS)
    waiting = Execution.objects.unclaimed(now).dispatched_for(patience, now)
    if not waiting.exists():
        return 0
    running = Execution.objects.running_by_worker()
    reachable = Worker.objects.reachable(now).values_list("pk", "capacity")
    idle = [pk for pk, capacity in reachable if running.get(pk, 0) < capacity]
    due = [
        execution
        for execution in waiting.filter(worker_id__in=idle).without_contents()
        if _is_due_again(execution, now)
    ][: settings.MUSTER.batch_size]
    again = Execution.objects.unclaimed(now).filter(pk__in=[execution.pk for execution in due])
    again.update_unheld(dispatched_again_at=now)
    _dispatch(due, now=now, actor=actor)
    if due:
        log.warning("dispatched again what nobody had claimed", n=len(due))
    return len(due)


def _is_due_again(execution: Execution, now: datetime) -> bool:
    first, last = execution.scheduled_at, execution.dispatched_again_at
    if first is None or last is None or last < first:  # not in this attempt
        return True
    return now - last >= last - first


def schedule_backlog(*, placement: fleet.Placement, now: datetime, actor: str, limit: int) -> bool:
    """Give waiting executions to workers with room; returns whether more may be waiting.

    Finds what no message told of: a lost one, a broker that was down, a retry that is due.
    """
    placement.refresh(now=now)
    room = placement.room()
    choosable = Q(action__runtime__in=[runtime for runtime, free in room.items() if free > 0])
    hopeless = ~Q(action__runtime__in=list(room))
    # no more than there is room for: whatever is taken in vain delays what stands behind it
    limit = min(limit, max(room.values(), default=0) or limit)
    backlog = Execution.objects.backlog(now).without_contents()
    with transaction.atomic():
        # a worker is kept empty for it: it comes before all others
        suspect = backlog.filter(pk=placement.suspect) if placement.suspect else backlog.none()
        waiting = [
            *suspect.locked_for_batch(1).with_actions(),
            *backlog.filter(choosable | hopeless | Q(pinned_worker__isnull=False))
            .exclude(pk=placement.suspect)
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
    """Choose a worker for each, commit, dispatch; returns whether some found all workers full.

    `postpone`: those are looked at again after others have had their turn.
    """
    began = time.monotonic()
    if unloaded.are_among(executions):
        # whose worker has said in its row since that it lacks their code
        placement.refresh(now=now, older_than_seconds=0.0)
    placement.refresh(now=now)
    chosen: list[Move] = []
    by_id: dict[UUID, Execution] = {}
    full: list[UUID] = []
    without: dict[str, list[Execution]] = defaultdict(list)
    for execution in executions:
        try:
            worker_id = _pick(execution, placement=placement, now=now, began=began)
        except fleet.FleetBusy:
            full.append(execution.pk)
        except fleet.NoWorkerAvailable as missing:
            without[str(missing)].append(execution)
        else:
            chosen.append(_assignment(execution, worker_id, now))
            by_id[execution.pk] = execution
    moved = Execution.objects.transition_many("schedule", chosen, now=now, actor=actor)
    for assignment in chosen:
        if assignment.id in moved:
            execution = by_id[assignment.id]
            execution.attempt += 1
            execution.status = ExecutionStatus.SCHEDULED
            execution.worker_id = assignment.values["worker"]
    if postpone and full:
        # looked at again when somebody has room; until then others come first
        Execution.objects.filter(pk__in=full).backlog(now).update(
            next_retry_at=now + BROKER_PAUSE, wait_reason=FULL
        )
    for what, group in without.items():
        _without_worker(group, what, now=now, actor=actor)
    dispatched = [by_id[id] for id in by_id if id in moved]
    transaction.on_commit(partial(_dispatch, dispatched, now=now, actor=actor))
    return bool(full)


def _pick(execution: Execution, *, placement: fleet.Placement, now: datetime, began: float) -> int:
    """A worker for this execution. Raises NoWorkerAvailable and FleetBusy."""

    def pick() -> int:
        return placement.pick(
            runtime=execution.action.runtime,
            selector=execution.wanted_labels,
            code=execution.needed_code,
            pinned=execution.pinned_worker_id,
            avoid=execution.worker_id,
            suspect=execution.pk if execution.is_suspect else None,
            now=now,
        )

    try:
        return pick()
    except fleet.NoWorkerAvailable:
        # an old view may cost balance, but must not end anything: a worker may just have come
        placement.refresh(now=now, older_than_seconds=time.monotonic() - began)
        return pick()


def _assignment(execution: Execution, worker_id: int, now: datetime) -> Move:
    wait = timedelta(
        milliseconds=execution.dispatch_ttl_ms, seconds=settings.MUSTER.start_grace_seconds
    )
    return Move(
        execution.pk,
        execution.status,
        execution.attempt,
        {
            "worker": worker_id,
            "start_by": min(now + wait, execution.deadline_at),
            "next_retry_at": None,
            "wait_reason": "",
        },
    )


def _dispatch(executions: Sequence[Execution], *, now: datetime, actor: str) -> None:
    """Send each to its worker's queue; what cannot be sent goes back at once."""
    queue_ttl_ms = settings.MUSTER.worker_queue_ttl_ms
    messages = [
        publisher.dispatch(
            execution_id=execution.pk,
            attempt=execution.attempt,
            worker_id=execution.worker_id or 0,
            ttl_ms=execution.dispatch_ttl_ms if execution.dispatch_ttl_ms < queue_ttl_ms else None,
        )
        for execution in executions
    ]
    try:
        unroutable = {message.kwargs["execution_id"] for message in publisher.send(messages)}
    except publisher.BrokerUnavailable as error:
        log.warning("dispatch failed, giving back", error=error, n=len(executions))
        Execution.objects.transition_many(
            "give_back",
            [move(e, next_retry_at=now + BROKER_PAUSE) for e in executions],
            now=now,
            actor=actor,
            reason=Reason.DISPATCH_FAILED,
        )
        return
    if unroutable:
        _return_unroutable([e for e in executions if str(e.pk) in unroutable], now=now, actor=actor)


def _return_unroutable(executions: Sequence[Execution], *, now: datetime, actor: str) -> None:
    """The broker has no queue for these: declare it again, and give them back, which counts for
    no policy. Where it cannot be declared, they are tried less often, until their deadline.

    A retired worker has no queue on purpose: what is pinned to one ends.
    """
    retired = set(
        Worker.objects.filter(
            pk__in={execution.worker_id for execution in executions}, retired_at__isnull=False
        ).values_list("pk", flat=True)
    )
    hopeless = [e for e in executions if e.pinned_worker_id in retired]
    others = [e for e in executions if e.pinned_worker_id not in retired]
    if hopeless:
        _end_unroutable(hopeless, now=now)
    pause = BROKER_PAUSE
    missing = {e.worker_id for e in others if e.worker_id and e.worker_id not in retired}
    try:
        publisher.make_whole(topology.dispatch_key(worker_id) for worker_id in missing)
    except publisher.BrokerUnavailable as error:
        log.warning("queues of workers not declared", error=error)
    except TopologyDiffers as differs:
        pause = UNDECLARABLE_PAUSE
        _complain(differs)
    Execution.objects.transition_many(
        "give_back",
        [move(execution, next_retry_at=now + pause) for execution in others],
        now=now,
        actor=actor,
        reason=Reason.UNROUTABLE,
    )


def _complain(differs: TopologyDiffers) -> None:
    """Log it, once a minute: each execution that comes up meanwhile would say the same."""
    global _complained_at
    if time.monotonic() - _complained_at > COMPLAIN_EVERY_SECONDS:
        _complained_at = time.monotonic()
        log.error("a worker's queue cannot be declared", differs=str(differs))


def _end_unroutable(executions: Sequence[Execution], *, now: datetime) -> None:
    """There will be no queue for these: each attempt ends, and an entry tells of its message."""
    detail = "the worker that it is pinned to is retired, and has no queue any more"
    attempts = {execution.pk: execution.attempt for execution in executions}
    rows = Execution.objects.filter(pk__in=attempts, status=ExecutionStatus.SCHEDULED)
    with transaction.atomic():
        found = rows.select_related("worker").defer("result").with_actions()
        dispatched = [row for row in found if row.attempt == attempts[row.pk]]
        ended = end_attempts(
            dispatched, reason=Reason.UNROUTABLE, detail=detail, failed_by="executor", now=now
        )
        investigations.open_for_executions(
            [execution for execution in dispatched if execution.pk in ended],
            reason=DLQEntry.Reason.UNROUTABLE,
            detail=detail,
            now=now,
            actor="executor",
        )


def _without_worker(
    executions: Sequence[Execution], what: str, *, now: datetime, actor: str
) -> None:
    """No worker is eligible: reject or wait, as each action says.

    What was accepted while there was a worker for it outlives a fleet that is away for a moment,
    as when its only worker is restarted. That depends on the execution alone, and not on who
    comes to look at it first.
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
    """The ids of those for which there was a worker when they were accepted, and a moment ago."""
    # just after the clock was set, nobody can tell who was heard of in time
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
        # accepted after `now` was read, it may be newer than a worker that is there
        and (until >= now or accepted_at < until + READERS_DIFFER_BY)
        and now - until < grace
    }


def note_completed(execution_ids: Sequence[UUID], *, placement: fleet.Placement) -> int:
    """Free the places of executions that ended, and log how the whole fleet's work ends.

    Returns how many places became free. Safe to run twice: placement reads the truth anew
    each second.
    """
    ends = Execution.objects.filter(pk__in=execution_ids, ended_at__isnull=False).values_list(
        "worker_id", "action_ref", "status", "reason"
    )
    freed = 0
    told: Counter[tuple[str, str, str]] = Counter()
    for worker_id, action_ref, status, reason in ends:
        told[action_ref, status, reason] += 1
        if worker_id is not None:
            placement.finished(worker_id)
            freed += 1
    for (action_ref, status, reason), number in told.items():
        log.info("executions ended", action=action_ref, status=status, reason=reason, n=number)
    return freed
