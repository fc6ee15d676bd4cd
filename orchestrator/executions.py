"""The life of an execution: request, schedule, claim, finish, retry, cancel, sweep."""

from __future__ import annotations

import logging
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet

from orchestrator import fleet, packs, publisher
from orchestrator.errors import MusterError
from orchestrator.models import Action, Execution, Worker
from orchestrator.reasons import Reason
from orchestrator.retry_policy import RetryPolicy
from orchestrator.state_machine import (
    ExecutionStatus,
    Move,
    TransitionConflict,
    transition,
    transition_many,
)

log = logging.getLogger(__name__)

BROKER_PAUSE = timedelta(seconds=1)
"""How long what could not be dispatched is left alone before it is tried again."""

WAIT_FOR_WORKER = timedelta(seconds=2)
"""How often what waits for an eligible worker is looked at again."""

CANCEL_TRIES = 5
"""A cancel that loses this many races in a row gives up; each race lost is real progress."""


# --- request -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class NewExecution:
    """What a caller asks for. Times as their names say; None means the action's own."""

    action_ref: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    worker_id: int | None = None
    priority: int = 0
    timeout_seconds: float | None = None
    queue_ttl_ms: int | None = None
    deadline_seconds: float | None = None
    idempotency_key: str | None = None
    correlation_id: str | None = None


@dataclass(frozen=True)
class Refusal:
    """One thing that was wrong with a request: which of many, where in it, and what."""

    index: int
    pointer: str
    """JSON pointer into that request, such as `/parameters/seconds`."""
    message: str


class RequestRefused(MusterError):
    """The request was refused and left no row."""

    def __init__(self, refusals: Sequence[Refusal]) -> None:
        told = [f"{r.pointer}: {r.message}" for r in refusals[:3]]
        if len(refusals) > len(told):
            told.append(f"and {len(refusals) - len(told)} more")
        super().__init__("; ".join(told))
        self.refusals = list(refusals)


class IdempotencyConflict(MusterError):
    """This idempotency key was used before, for another action or other parameters."""


class UnknownExecution(MusterError):
    """No execution has this id."""


def request(new: NewExecution, *, requested_by: str, now: datetime) -> Execution:
    """Accept one execution; see `request_many`."""
    return request_many([new], requested_by=requested_by, now=now)[0]


def request_many(
    news: Sequence[NewExecution], *, requested_by: str, now: datetime
) -> list[Execution]:
    """Accept executions: all of them, or none; returns their rows in the order of `news`.

    A repeated idempotency key returns the row that it made the first time.
    Raises RequestRefused with everything that was wrong, and IdempotencyConflict.
    The message goes out after the commit and in the background: accepting needs no broker.
    """
    actions = Action.objects.in_bulk({new.action_ref for new in news}, field_name="ref")
    pinned = {new.worker_id for new in news if new.worker_id is not None}
    workers = Worker.objects.in_bulk(pinned) if pinned else {}
    refusals = [
        Refusal(index, pointer, message)
        for index, new in enumerate(news)
        for pointer, message in _problems(new, actions.get(new.action_ref), workers)
    ]
    if refusals:
        raise RequestRefused(refusals)

    rows = [_row(new, actions[new.action_ref], requested_by=requested_by, now=now) for new in news]
    keyed = {row.idempotency_key: row for row in rows if row.idempotency_key is not None}
    with transaction.atomic():
        # a key that is taken is skipped here and looked up below: no window between the two
        Execution.objects.bulk_create(rows, ignore_conflicts=bool(keyed))
        taken = _taken_before(keyed) if keyed else {}
        fresh: dict[UUID, Execution] = {}
        for row in rows:
            if row.idempotency_key is None or taken[row.idempotency_key].pk == row.pk:
                fresh[row.pk] = row
        transaction.on_commit(lambda: publisher.send_soon(publisher.requested(list(fresh))))
    return [fresh.get(row.pk) or taken[str(row.idempotency_key)] for row in rows]


def _problems(
    new: NewExecution, action: Action | None, workers: Mapping[int, Worker]
) -> Iterable[tuple[str, str]]:
    if action is None:
        yield "/action_ref", f"no action is called {new.action_ref!r}"
    elif not action.enabled:
        yield "/action_ref", f"the action {new.action_ref} is disabled"
    else:
        for problem in packs.validate_parameters(action, dict(new.parameters)):
            yield f"/parameters{problem.pointer}", problem.message
    if new.worker_id is not None and new.worker_id not in workers:
        yield "/worker_id", f"no worker has the id {new.worker_id}"
    for name in ("timeout_seconds", "queue_ttl_ms", "deadline_seconds"):
        value = getattr(new, name)
        if value is not None and value <= 0:
            yield f"/{name}", f"expected a number above 0, found {value}"


def _row(new: NewExecution, action: Action, *, requested_by: str, now: datetime) -> Execution:
    deadline_seconds = new.deadline_seconds or settings.MUSTER.deadline_seconds
    return Execution(
        action=action,
        action_ref=action.ref,
        parameters=new.parameters,
        priority=new.priority,
        pinned_worker_id=new.worker_id,
        timeout_seconds=new.timeout_seconds
        or action.timeout_seconds
        or settings.MUSTER.default_timeout_seconds,
        queue_ttl_ms=new.queue_ttl_ms or action.queue_ttl_ms,
        deadline_at=now + timedelta(seconds=deadline_seconds),
        requested_by=requested_by,
        correlation_id=new.correlation_id,
        idempotency_key=new.idempotency_key,
        created_at=now,
    )


def _taken_before(keyed: Mapping[str, Execution]) -> dict[str, Execution]:
    """The rows that hold these keys now, ours or earlier ones."""
    taken = {}
    for row in Execution.objects.filter(idempotency_key__in=keyed):
        wanted = keyed[str(row.idempotency_key)]
        if (row.action_ref, row.parameters) != (wanted.action_ref, wanted.parameters):
            raise IdempotencyConflict(
                f"The idempotency key {row.idempotency_key!r} belongs to execution {row.pk}, "
                "which has another action or other parameters"
            )
        taken[str(row.idempotency_key)] = row
    return taken


# --- schedule ----------------------------------------------------------------------------------


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
    wanted = Execution.objects.filter(pk__in=execution_ids).select_related("action")
    ready = wanted.backlog(now)
    held_back = _place(list(ready), placement=placement, now=now, actor=actor, patient=False)
    if redelivered:
        stuck = wanted.filter(status=ExecutionStatus.SCHEDULED, start_by__gt=now)
        _dispatch(list(stuck), now=now, actor=actor)
    return held_back


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
    backlog = Execution.objects.backlog(now).select_related("action")
    with transaction.atomic():
        waiting = list(
            backlog.filter(choosable | hopeless | Q(pinned_worker__isnull=False))
            .locked_for_batch(limit)
        )  # fmt: skip
        postponed = _place(waiting, placement=placement, now=now, actor=actor, patient=True)
    return postponed or len(waiting) == limit


def _place(
    executions: Sequence[Execution],
    *,
    placement: fleet.Placement,
    now: datetime,
    actor: str,
    patient: bool,
) -> bool:
    """Choose a worker for each, commit, dispatch; returns whether some found all workers full.

    `patient`: these wait already, so a fleet that is away for a moment does not end them.
    """
    placement.refresh(now=now)
    chosen: list[Move] = []
    by_id: dict[UUID, Execution] = {}
    full: list[UUID] = []
    without: dict[str, list[Execution]] = defaultdict(list)
    for execution in executions:
        try:
            worker_id = placement.pick(
                runtime=execution.action.runtime,
                pinned=execution.pinned_worker_id,
                avoid=execution.worker_id if execution.retry_count else None,
                now=now,
            )
        except fleet.FleetBusy:
            full.append(execution.pk)
        except fleet.NoWorkerAvailable as missing:
            without[str(missing)].append(execution)
        else:
            chosen.append(_assignment(execution, worker_id, now))
            by_id[execution.pk] = execution
    moved = transition_many("schedule", chosen, now=now, actor=actor)
    for move in chosen:
        if move.id in moved:
            execution = by_id[move.id]
            execution.attempt += 1
            execution.status = ExecutionStatus.SCHEDULED
            execution.worker_id = move.values["worker"]
    if patient and full:
        # looked at again when somebody has room; until then others come first
        Execution.objects.filter(pk__in=full).backlog(now).update(next_retry_at=now + BROKER_PAUSE)
    for what, group in without.items():
        _without_worker(group, what, now=now, actor=actor, patient=patient)
    dispatched = [by_id[id] for id in by_id if id in moved]
    transaction.on_commit(partial(_dispatch, dispatched, now=now, actor=actor))
    return bool(full)


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
        log.warning("dispatch failed, giving back", extra={"error": error, "n": len(executions)})
        transition_many(
            "give_back",
            [_move(e, next_retry_at=now + BROKER_PAUSE) for e in executions],
            now=now,
            actor=actor,
            reason=Reason.DISPATCH_FAILED,
        )
        return
    if unroutable:
        end_attempts(
            [e for e in executions if str(e.pk) in unroutable],
            reason=Reason.UNROUTABLE,
            detail="no queue is bound for its worker",
            failed_by="executor",
            now=now,
        )


def _without_worker(
    executions: Sequence[Execution], what: str, *, now: datetime, actor: str, patient: bool
) -> None:
    """No worker is eligible: reject or wait, as each action says."""
    runtimes = {execution.action.runtime for execution in executions}
    away_for_a_moment = {r for r in runtimes if patient and _was_seen_lately(r, now)}
    wait: list[Execution] = []
    reject: list[Execution] = []
    for execution in executions:
        action = execution.action
        waits = action.on_no_worker == Action.OnNoWorker.WAIT or action.runtime in away_for_a_moment
        (wait if waits else reject).append(execution)
    again_at = now + WAIT_FOR_WORKER
    transition_many(
        "wait",
        [
            _move(e, wait_reason=what[:200], next_retry_at=again_at)
            for e in wait
            if e.status == ExecutionStatus.REQUESTED
        ],
        now=now,
        actor=actor,
    )
    already = [e.pk for e in wait if e.status == ExecutionStatus.SCHEDULING]
    Execution.objects.filter(pk__in=already).backlog(now).update(
        wait_reason=what[:200], next_retry_at=again_at
    )
    end_attempts(
        reject, reason=Reason.NO_WORKER_AVAILABLE, detail=what, failed_by="executor", now=now
    )


def _was_seen_lately(runtime: str, now: datetime) -> bool:
    seen_at = fleet.last_seen_at(runtime)
    grace = timedelta(seconds=settings.MUSTER.no_worker_grace_seconds)
    return seen_at is not None and now - seen_at < grace


# --- claim and finish --------------------------------------------------------------------------


def claim(
    attempts: Mapping[UUID, int], *, worker_id: int, incarnation: int, now: datetime, actor: str
) -> list[Execution]:
    """Take dispatched attempts for running; returns those that this worker may now start.

    Nothing else may be started. A message of an earlier attempt, a second copy, a cancelled or
    expired execution and a worker that was declared lost all end in the same way: not returned.
    """
    offered = (
        Execution.objects.filter(
            pk__in=attempts,
            status=ExecutionStatus.SCHEDULED,
            worker_id=worker_id,
            start_by__gt=now,
            deadline_at__gt=now,
            worker__incarnation=incarnation,
        )
        .exclude(worker__status=Worker.Status.INACTIVE)
        .select_related("action__pack")
    )
    executions = {e.pk: e for e in offered if attempts[e.pk] == e.attempt}
    moves = []
    for execution in executions.values():
        limit_seconds = _run_limit_seconds(execution, now)
        grace_seconds = settings.MUSTER.run_grace_seconds
        execution.run_deadline_at = now + timedelta(seconds=limit_seconds + grace_seconds)
        execution.worker_incarnation = incarnation
        moves.append(
            _move(
                execution, worker_incarnation=incarnation, run_deadline_at=execution.run_deadline_at
            )
        )
    moved = transition_many("claim", moves, now=now, actor=actor)
    claimed = [executions[id] for id in executions if id in moved]
    for execution in claimed:
        execution.status = ExecutionStatus.RUNNING
        execution.started_at = now
    return claimed


def _run_limit_seconds(execution: Execution, now: datetime) -> float:
    return min(execution.timeout_seconds, (execution.deadline_at - now).total_seconds())


def run_limit_seconds(execution: Execution) -> float:
    """How long a claimed execution may run: its timeout, cut short by its deadline."""
    assert execution.started_at is not None
    return _run_limit_seconds(execution, execution.started_at)


@dataclass(frozen=True)
class Ended:
    """How one claimed attempt ended, as its worker saw it."""

    execution: Execution
    """As claimed. Never reloaded: a fresh attempt number would defeat the fence."""
    reason: Reason
    result: Mapping[str, Any]


def finish(ended: Sequence[Ended], *, now: datetime, actor: str) -> set[UUID]:
    """Record how attempts ended; returns the ids for which that still counted.

    A result of an attempt that was given up meanwhile is refused by the fence and changes
    nothing. A failure goes to another attempt where the policy allows.
    """
    by_reason: dict[Reason, list[Ended]] = defaultdict(list)
    for end in ended:
        by_reason[end.reason].append(end)
    counted: set[UUID] = set()
    for reason, group in by_reason.items():
        results = {end.execution.pk: end.result for end in group}
        counted |= _end(
            [end.execution for end in group],
            reason=reason,
            result_of=lambda execution, results=results: results[execution.pk],  # type: ignore[misc]
            now=now,
            actor=actor,
        )
    return counted


def end_attempts(
    executions: Sequence[Execution],
    *,
    reason: Reason,
    detail: str,
    failed_by: str,
    now: datetime,
) -> set[UUID]:
    """End attempts from outside: sweep, drain, staleness check, executor.

    Each goes to another attempt where its policy allows and to its terminal status otherwise.
    Returns the ids that moved; the others lost a race, which is as good an end.
    """
    result = {"error": reason.text, "message": detail, "failed_by": failed_by}
    return _end(
        executions, reason=reason, result_of=lambda execution: result, now=now, actor=failed_by
    )


def give_back(executions: Sequence[Execution], *, now: datetime, actor: str) -> set[UUID]:
    """A worker returns dispatched attempts that it has not started."""
    moves = [_move(e) for e in executions]
    moved = transition_many("give_back", moves, now=now, actor=actor, reason=Reason.GIVEN_BACK)
    transaction.on_commit(partial(publisher.send_soon, publisher.requested(list(moved))))
    return moved


def _end(
    executions: Sequence[Execution],
    *,
    reason: Reason,
    result_of: Callable[[Execution], Mapping[str, Any]],
    now: datetime,
    actor: str,
) -> set[UUID]:
    """Retry what may be retried, end the rest, tell the executors of both."""
    groups: dict[str, list[Move]] = defaultdict(list)
    for execution in executions:
        policy = RetryPolicy.from_dict(execution.action.retry_policy)
        if _may_retry(execution, policy, reason, now):
            groups["retry"].append(_retry(execution, policy, now))
        else:
            event = _terminal_event(execution.status, reason)
            groups[event].append(_move(execution, result=result_of(execution)))
    moved: set[UUID] = set()
    retried: set[UUID] = set()
    for event, moves in groups.items():
        done = transition_many(event, moves, now=now, actor=actor, reason=reason)
        moved |= done
        if event == "retry":
            retried = done
    moved |= _end_canceling(
        [e for e in executions if e.pk not in moved and e.status == ExecutionStatus.RUNNING],
        reason=reason,
        result_of=result_of,
        now=now,
        actor=actor,
    )
    due = [move.id for move in groups["retry"] if move.id in retried and not _is_delayed(move)]
    transaction.on_commit(
        lambda: publisher.send_soon(
            [*publisher.completed(list(moved - retried)), *publisher.requested(due)]
        )
    )
    return moved


def _end_canceling(
    executions: Sequence[Execution],
    *,
    reason: Reason,
    result_of: Callable[[Execution], Mapping[str, Any]],
    now: datetime,
    actor: str,
) -> set[UUID]:
    """A cancel came between claim and end: the attempt is the same, the status is not."""
    moves: dict[str, list[Move]] = defaultdict(list)
    for execution in executions:
        event = _terminal_event(ExecutionStatus.CANCELING, reason)
        moves[event].append(
            Move(
                execution.pk,
                ExecutionStatus.CANCELING,
                execution.attempt,
                {"result": result_of(execution)},
            )
        )
    moved: set[UUID] = set()
    for event, group in moves.items():
        moved |= transition_many(event, group, now=now, actor=actor, reason=reason)
    return moved


def _terminal_event(status: ExecutionStatus | str, reason: Reason) -> str:
    """Which event ends an execution in `status` for `reason` when there is no further attempt."""
    if status in (ExecutionStatus.REQUESTED, ExecutionStatus.SCHEDULING):
        return "reject"
    if status == ExecutionStatus.SCHEDULED:
        return "expire"
    if reason is Reason.SUCCEEDED:
        return "complete"
    if reason in (Reason.WORKER_LOST, Reason.PROCESS_LOST):
        return "abandon"
    if status == ExecutionStatus.CANCELING:
        return "confirm_cancel"
    if reason in (Reason.RUN_TIMEOUT, Reason.RUN_DEADLINE_PASSED):
        return "time_out"
    return "fail"


def _may_retry(execution: Execution, policy: RetryPolicy, reason: Reason, now: datetime) -> bool:
    return (
        execution.status in (ExecutionStatus.SCHEDULED, ExecutionStatus.RUNNING)
        and execution.deadline_at > now
        and policy.allows(
            reason, retry_count=execution.retry_count, idempotent=execution.action.idempotent
        )
    )


def _retry(execution: Execution, policy: RetryPolicy, now: datetime) -> Move:
    delay_ms = policy.delay_ms(execution.retry_count + 1, random=random.random)
    return _move(
        execution,
        retry_count=execution.retry_count + 1,
        next_retry_at=now + timedelta(milliseconds=delay_ms) if delay_ms else None,
        start_by=None,
        run_deadline_at=None,
    )


def _is_delayed(move: Move) -> bool:
    return move.values["next_retry_at"] is not None


def _move(execution: Execution, **values: Any) -> Move:
    return Move(execution.pk, execution.status, execution.attempt, values)


# --- after the end -----------------------------------------------------------------------------


def note_completed(execution_ids: Sequence[UUID], *, placement: fleet.Placement) -> int:
    """Free the places of executions that ended, and log each end once for the whole fleet.

    Returns how many places became free. Safe to run twice: placement reads the truth anew
    each second.
    """
    ends = Execution.objects.filter(pk__in=execution_ids, ended_at__isnull=False).values_list(
        "pk", "action_ref", "status", "reason", "attempt", "worker_id", "started_at", "ended_at"
    )
    freed = 0
    for pk, action_ref, status, reason, attempt, worker_id, started_at, ended_at in ends:
        ran = ended_at - started_at if started_at and ended_at else None
        if worker_id is not None:
            placement.finished(worker_id)
            freed += 1
        log.info(
            "execution ended",
            extra={
                "execution_id": str(pk),
                "action": action_ref,
                "status": status,
                "reason": reason,
                "attempt": attempt,
                "ran_seconds": ran.total_seconds() if ran else None,
            },
        )
    return freed


# --- cancel ------------------------------------------------------------------------------------


class AlreadyOver(MusterError):
    """The execution has ended; there is nothing to cancel."""


def cancel(*, execution_id: UUID, actor: str, now: datetime) -> Execution:
    """Cancel: at once before the claim, by a message to its worker after it.

    Returns the row as it is now: `cancelled`, or `canceling` until the worker confirms.
    Raises UnknownExecution, AlreadyOver, and TransitionConflict after too many lost races.
    """
    for _ in range(CANCEL_TRIES):
        try:
            execution = Execution.objects.get(pk=execution_id)
        except Execution.DoesNotExist:
            raise UnknownExecution(f"No execution has the id {execution_id}") from None
        if execution.status == ExecutionStatus.CANCELING:
            return execution
        if execution.is_terminal:
            raise AlreadyOver(f"Execution {execution_id} is over: {execution.status}")
        try:
            return _cancel(execution, actor=actor, now=now)
        except TransitionConflict:
            continue  # it was claimed, retried or ended meanwhile: look again
    raise TransitionConflict(f"Execution {execution_id} keeps changing; try again")


def _cancel(execution: Execution, *, actor: str, now: datetime) -> Execution:
    if execution.status != ExecutionStatus.RUNNING:
        detail = {"error": Reason.CANCELLED.text, "message": f"by {actor}", "failed_by": actor}
        cancelled = transition(
            execution, "cancel", now=now, actor=actor, reason=Reason.CANCELLED, result=detail
        )
        transaction.on_commit(partial(publisher.send_soon, publisher.completed([execution.pk])))
        return cancelled
    muster = settings.MUSTER
    grace = timedelta(seconds=muster.cancel_grace_seconds + muster.run_grace_seconds)
    canceling = transition(
        execution,
        "request_cancel",
        now=now,
        actor=actor,
        run_deadline_at=min(execution.run_deadline_at or now + grace, now + grace),
    )
    message = publisher.cancel(
        execution_id=canceling.pk,
        attempt=canceling.attempt,
        worker_id=canceling.worker_id or 0,
    )
    transaction.on_commit(partial(publisher.send_soon, [message]))
    return canceling


def to_stop(*, worker_id: int, incarnation: int) -> list[tuple[UUID, int]]:
    """What this worker runs and shall stop: finds the cancels whose message was lost."""
    canceling = Execution.objects.open().filter(
        status=ExecutionStatus.CANCELING, worker_id=worker_id, worker_incarnation=incarnation
    )
    return list(canceling.values_list("pk", "attempt"))


# --- sweep: the guarantee ----------------------------------------------------------------------


def sweep(*, now: datetime) -> dict[str, int]:
    """End every attempt whose due time has passed; returns how many, by kind.

    This is what holds the promise when messages, workers or beat are gone: it needs nothing
    but the database.
    """
    kinds: list[tuple[str, QuerySet[Execution], Reason, str]] = [
        (
            "deadline_passed",
            Execution.objects.past_deadline(now),
            Reason.DEADLINE_PASSED,
            "its deadline passed before it could start",
        ),
        (
            "not_started",
            Execution.objects.overdue_to_start(now),
            Reason.SCHEDULED_TIMEOUT,
            "its worker did not claim it before start_by",
        ),
        (
            "not_ended",
            Execution.objects.overdue_to_end(now).filter(status=ExecutionStatus.RUNNING),
            Reason.RUN_DEADLINE_PASSED,
            "its worker reported no end before run_deadline_at",
        ),
        (
            "cancel_unconfirmed",
            Execution.objects.overdue_to_end(now).filter(status=ExecutionStatus.CANCELING),
            Reason.CANCEL_UNCONFIRMED,
            "its worker did not confirm in time that the action was stopped",
        ),
    ]
    return {
        kind: _end_all(overdue, reason, detail, failed_by="execution_timeout_monitor", now=now)
        for kind, overdue, reason, detail in kinds
    }


def settle_lost(*, now: datetime) -> int:
    """End what started on workers that are gone: silent, stopped, or in a newer life.

    A worker that left in good order has finished what it ran, so what it still holds is lost.
    """
    gone = Q(worker__status=Worker.Status.INACTIVE) | ~Q(
        worker_incarnation=F("worker__incarnation")
    )
    started = Execution.objects.open().filter(
        status__in=[ExecutionStatus.RUNNING, ExecutionStatus.CANCELING]
    )
    return _end_all(
        started.filter(gone),
        Reason.WORKER_LOST,
        "its worker stopped sending heartbeats or was replaced",
        failed_by="heartbeat_staleness_check",
        now=now,
    )


def _end_all(
    overdue: QuerySet[Execution], reason: Reason, detail: str, *, failed_by: str, now: datetime
) -> int:
    """End a query's executions batch by batch. A batch in which nothing moved ends the loop:
    others are at work on the same rows, or will be asked again at the next tick."""
    total = 0
    size: int = settings.MUSTER.batch_size
    while True:
        batch = list(overdue.select_related("action")[:size])
        ended = end_attempts(batch, reason=reason, detail=detail, failed_by=failed_by, now=now)
        total += len(ended)
        if len(batch) < size or not ended:
            return total
