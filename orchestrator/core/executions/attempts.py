"""One attempt: claimed by its worker, finished by it, or ended from outside."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import connection, transaction

from orchestrator.core import clock, database, messages, relay, tracing
from orchestrator.core.executions import deferring, logged, unloaded
from orchestrator.core.executions.ended import Ended
from orchestrator.core.models import Execution, add_actions
from orchestrator.core.models.execution_sets import DEADLINE_GRACE
from orchestrator.core.models.executions import ExecutionQuerySet
from orchestrator.core.reasons import Reason
from orchestrator.core.retry_policy import InvalidRetryPolicy, RetryPolicy
from orchestrator.core.state_machine import Move
from orchestrator.core.states import AGAIN, AttemptKey, ExecutionStatus, Lane

log = structlog.get_logger(__name__)

WHILE_CANCELING = {
    Reason.RUN_TIMEOUT: Reason.CANCELLED_RUNNING,
    Reason.WORKER_STOPPED: Reason.CANCELLED_RUNNING,
    Reason.RUN_DEADLINE_PASSED: Reason.CANCEL_UNCONFIRMED,
    Reason.PACK_UNAVAILABLE: Reason.CANCELLED,
    Reason.KEY_REFUSED: Reason.CANCELLED,
    Reason.TASK_REJECTED: Reason.CANCELLED,
}
"""The reason to record instead while a cancel is under way. An action that ended on its own before
its worker heard of the cancel keeps that end, good or bad."""

TO_REPORT = timedelta(seconds=1)
"""A worker's time from the end of an action to its record."""

End = Callable[..., Collection[UUID]]
"""Takes what `end_attempts` takes, and returns the ids that moved."""


def claim(
    attempts: Collection[AttemptKey],
    *,
    worker_id: int,
    incarnation: int,
    now: datetime,
    actor: str,
) -> list[Execution]:
    """Claim dispatched attempts; returns those that this worker may now start.

    Nothing else may be started. A message of an earlier attempt, a second copy, a cancelled or
    expired execution, and any attempt of a worker that was declared lost are not returned. Nor is a
    row that another transaction holds at the moment, see `holdings.still_offered`.
    """
    began_ns = tracing.clock_ns()
    claimed = add_actions(
        Execution.objects.claim(
            attempts,
            worker_id=worker_id,
            incarnation=incarnation,
            run_grace=timedelta(seconds=settings.MUSTER.run_grace_seconds),
            now=now,
            actor=actor,
        )
    )
    tracing.claimed(claimed, worker=actor, began_ns=began_ns)
    return claimed


def run_limit_seconds(execution: Execution, waited_seconds: float = 0.0) -> float:
    """Limit of the run of an execution that was claimed so long ago: its timeout, or what is left
    until its deadline if less."""
    assert execution.started_at is not None
    left = execution.deadline_at - execution.started_at
    # 0 would be no limit
    return min(execution.timeout_seconds, max(0.001, left.total_seconds() - waited_seconds))


def stop_limit_seconds(execution: Execution, waited_seconds: float = 0.0) -> float:
    """Limit of the time that the action of an execution that was claimed so long ago has to stop,
    once it is told to: the setting's, or less if its deadline cut its run short. Its worker reports
    the end before the sweep gives it up."""
    assert execution.started_at is not None
    left = execution.deadline_at + (DEADLINE_GRACE - TO_REPORT) - execution.started_at
    run_seconds = run_limit_seconds(execution, waited_seconds)
    left_seconds = left.total_seconds() - waited_seconds - run_seconds
    return min(float(settings.MUSTER.cancel_grace_seconds), left_seconds)


def finish(ended: Sequence[Ended], *, now: datetime, actor: str) -> set[AttemptKey]:
    """Record how attempts ended; returns those whose end was accepted.

    The fence refuses a result of an attempt that was given up meanwhile; it changes nothing. A
    failure leads to another attempt where the policy allows. An attempt that is not returned may
    also be held by another transaction at the moment, see `holdings.still_started`. If a worker
    could not load the code, its row notes that first; then the execution goes elsewhere. If the
    action said that it cannot begin now, it waits: see `deferring`.
    """
    began_ns = tracing.clock_ns()
    unloaded.note_missing_code(ended, now=now)
    ended = deferring.settled(ended, now=now)
    counted: set[AttemptKey] = set()
    groups = list(_grouped(ended))
    with _together(len(groups)):
        for reason, group in groups:
            results = {end.execution.pk: end.result for end in group}
            moved = _end(
                [end.execution for end in group],
                reason=reason,
                result_of=lambda execution, results=results: results[execution.pk],  # type: ignore[misc]
                now=now,
                actor=actor,
            )
            accepted = [end for end in group if end.execution.pk in moved]
            counted |= {end.execution.key for end in accepted}
            transaction.on_commit(
                partial(tracing.reported, accepted, worker=actor, began_ns=began_ns)
            )
    return counted


@contextmanager
def _together(statements: int) -> Iterator[None]:
    """One transaction for several statements, unless the caller has one.

    Of a batch of which only a part was recorded when the connection broke, the worker would record
    all once more: that part would be refused, and no executor hear of it.
    """
    if statements < 2 or connection.in_atomic_block:
        yield
        return
    with transaction.atomic():
        database.hold_briefly()
        yield


def _grouped(ended: Sequence[Ended]) -> Iterator[tuple[Reason, list[Ended]]]:
    """Group by reason, with each execution once in a group: two of its attempts may end at once, if
    one was given up but kept running."""
    groups: dict[tuple[Reason, int], list[Ended]] = defaultdict(list)
    seen: dict[tuple[Reason, UUID], int] = defaultdict(int)
    for end in ended:
        nth = seen[end.reason, end.execution.pk]
        seen[end.reason, end.execution.pk] += 1
        groups[end.reason, nth].append(end)
    for (reason, _), group in groups.items():
        yield reason, group


def end_attempts(
    executions: Sequence[Execution],
    *,
    reason: Reason,
    detail: str | Mapping[UUID, str],
    failed_by: str,
    now: datetime,
) -> set[UUID]:
    """End attempts from outside the worker: for sweep, drain, staleness check, executor.

    Each gets another attempt where its policy allows, and its terminal status otherwise. Returns
    the ids that moved; the others lost a race, which is normal. `detail`: one for all, or by id.
    """

    def result_of(execution: Execution) -> Mapping[str, Any]:
        message = detail if isinstance(detail, str) else detail[execution.pk]
        return {"error": reason.text, "message": message, "failed_by": failed_by}

    began_ns = tracing.clock_ns()
    moved = _end(executions, reason=reason, result_of=result_of, now=now, actor=failed_by)
    theirs = [execution for execution in executions if execution.pk in moved]
    transaction.on_commit(
        partial(tracing.ended, theirs, reason=reason, actor=failed_by, began_ns=began_ns)
    )
    return moved


def end_all(
    overdue: ExecutionQuerySet,
    *,
    reason: Reason,
    detail: str,
    failed_by: str,
    moment: clock.Running,
    end: End = end_attempts,
) -> int:
    """End a query's executions batch by batch; returns how many.

    Each batch has its own transaction and its own time. Rows that another session holds are
    skipped, and found again at the next tick. A batch in which nothing moved ends the loop, and so
    does a clock that was set since `moment` began: nobody knows then whether the rows are overdue.
    """
    total = 0
    size: int = settings.MUSTER.batch_size
    while True:
        with transaction.atomic():
            database.hold_briefly()
            # in the order of the index of open rows: by id, PostgreSQL might walk the history
            # for so few
            rows = overdue.without_contents().order_by("queue", "-priority", "pk")
            batch = rows.locked_for_batch(size).with_actions()
            if batch and moment.was_set():
                return total
            ended = end(batch, reason=reason, detail=detail, failed_by=failed_by, now=moment())
        total += len(ended)
        if len(batch) < size or not ended:
            return total


def give_back(
    *,
    now: datetime,
    actor: str,
    worker_id: int | None = None,
    unstarted: Sequence[Execution] = (),
    reason: Reason = Reason.GIVEN_BACK,
) -> set[UUID]:
    """Put executions that a worker has not started back into the backlog; returns their ids.
    `worker_id`, for a worker that stops, adds everything that was dispatched to it.

    No retry policy counts this: nothing was tried. The messages stay in the worker's queue, and the
    fence refuses them.
    """
    dispatched = Execution.objects.dispatched()
    scheduled = (
        dispatched.filter(worker_id=worker_id).without_contents() if worker_id is not None else ()
    )
    moves = [move(execution) for execution in (*scheduled, *unstarted)]
    moved = Execution.objects.transition_many(
        "give_back", moves, now=now, actor=actor, reason=reason
    )
    transaction.on_commit(partial(relay.send_soon, messages.requested(list(moved))))
    return moved


def _end(
    executions: Sequence[Execution],
    *,
    reason: Reason,
    result_of: Callable[[Execution], Mapping[str, Any]],
    now: datetime,
    actor: str,
) -> set[UUID]:
    """Retry what may be retried, end the rest, and notify the executors of both."""
    groups: dict[str, list[Move]] = defaultdict(list)
    for execution in executions:
        event, its_move = _next(execution, reason, result_of(execution), now)
        groups[event].append(its_move)
    moved: set[UUID] = set()
    repeated: set[UUID] = set()
    with _together(len(groups)):
        for event, moves in groups.items():
            done = Execution.objects.transition_many(
                event, moves, now=now, actor=actor, reason=reason
            )
            moved |= done
            if event in AGAIN:
                repeated |= done
        moved |= _end_canceling(
            [e for e in executions if e.pk not in moved and e.status == ExecutionStatus.RUNNING],
            reason=reason,
            result_of=result_of,
            now=now,
            actor=actor,
        )
    again = [move for event in AGAIN for move in groups[event]]
    due = [move.id for move in again if move.id in repeated and not _is_delayed(move)]
    transaction.on_commit(
        lambda: relay.send_soon(
            [*messages.completed(list(moved - repeated)), *messages.requested(due)]
        )
    )
    transaction.on_commit(
        partial(
            logged.log_ends,
            executions,
            reason=reason,
            actor=actor,
            moved=moved,
            repeated=repeated,
        )
    )
    return moved


def _next(
    execution: Execution, reason: Reason, result: Mapping[str, Any], now: datetime
) -> tuple[str, Move]:
    """The event, and its move, that follow the end of this attempt."""
    if _is_to_go_on_elsewhere(execution, reason, now):
        return "give_back", move(execution, result=result)
    if reason is Reason.TASK_REJECTED:
        return "defer", move(execution, result=result, **deferring.pause(execution, result, now))
    loss = _loss(execution, reason)
    policy = _policy(execution)
    if policy is not None and _may_retry(execution, policy, reason):
        asked_seconds = deferring.asked_seconds(result) if reason is Reason.TRY_AGAIN else None
        due_at = now + _delay(execution, policy, asked_seconds)
        # what is due too late has failed already: it ends with what is known of this attempt
        if due_at < execution.deadline_at:
            values = _next_try(execution, due_at if due_at > now else None) | loss
            return "retry", move(execution, result=result, **values)
    return _terminal_event(execution.status, reason), move(execution, result=result, **loss)


def _end_canceling(
    executions: Sequence[Execution],
    *,
    reason: Reason,
    result_of: Callable[[Execution], Mapping[str, Any]],
    now: datetime,
    actor: str,
) -> set[UUID]:
    """End executions that were cancelled after the claim: same attempt, another status."""
    reason = WHILE_CANCELING.get(reason, reason)
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
        moved |= Execution.objects.transition_many(
            event, group, now=now, actor=actor, reason=reason
        )
    return moved


def _terminal_event(status: ExecutionStatus | str, reason: Reason) -> str:
    """The event that ends an execution in `status` for `reason` when there is no further
    attempt."""
    if status in (ExecutionStatus.REQUESTED, ExecutionStatus.SCHEDULING):
        return "reject"
    if status == ExecutionStatus.SCHEDULED:
        return "expire"
    if reason is Reason.SUCCEEDED:
        return "complete"
    if reason in (Reason.WORKER_LOST, Reason.PROCESS_LOST, Reason.WORKER_STOPPED):
        return "abandon"
    stopped = reason in (
        Reason.CANCELLED,
        Reason.CANCELLED_RUNNING,
        Reason.CANCEL_UNCONFIRMED,
    )
    if status == ExecutionStatus.CANCELING and stopped:
        return "confirm_cancel"
    if reason in (Reason.RUN_TIMEOUT, Reason.RUN_DEADLINE_PASSED):
        return "time_out"
    return "fail"


def _is_to_go_on_elsewhere(execution: Execution, reason: Reason, now: datetime) -> bool:
    """True if the execution goes back to the backlog, which no policy counts as a failure: its
    worker could not load it, or had to stop. A stopped one may have run in part, so only an
    idempotent action goes back."""
    if execution.status != ExecutionStatus.RUNNING or now >= execution.deadline_at:
        return False
    if reason is Reason.PACK_UNAVAILABLE:
        return True
    return reason is Reason.WORKER_STOPPED and execution.action.idempotent


def _policy(execution: Execution) -> RetryPolicy | None:
    """Its policy; None if it cannot be read, as another version wrote it. Then there is no other
    attempt: one execution must not keep those of its batch from their ends."""
    try:
        return RetryPolicy.from_dict(execution.wanted_retries)
    except InvalidRetryPolicy:
        log.exception("no other attempt, as its policy is invalid", execution_id=str(execution.pk))
        return None


def _may_retry(execution: Execution, policy: RetryPolicy, reason: Reason) -> bool:
    is_dispatched = execution.status in (ExecutionStatus.SCHEDULED, ExecutionStatus.RUNNING)
    return is_dispatched and policy.allows(
        reason, retry_count=execution.retry_count, idempotent=execution.action.idempotent
    )


def _delay(execution: Execution, policy: RetryPolicy, asked_seconds: float | None) -> timedelta:
    """The time until another attempt. `asked_seconds` is what the action itself asked for."""
    if asked_seconds is not None:
        return timedelta(milliseconds=round(asked_seconds * 1000))
    attempts = execution.retry_count + 1
    return timedelta(milliseconds=policy.delay_ms(attempts, random=random.random))


def _next_try(execution: Execution, due_at: datetime | None) -> dict[str, Any]:
    """Values to set for another attempt. The result says why this one ended, until the next one
    ends."""
    return {
        "retry_count": execution.retry_count + 1,
        "lane": None if execution.queue is None else Lane.RETRY,
        "next_retry_at": due_at,
        "start_by": None,
        "run_deadline_at": None,
    }


def _loss(execution: Execution, reason: Reason) -> dict[str, int]:
    if reason is not Reason.WORKER_LOST:
        return {}
    return {"lost_workers": execution.lost_workers + 1}


def _is_delayed(move: Move) -> bool:
    return move.values.get("next_retry_at") is not None


def move(execution: Execution, **values: Any) -> Move:
    """A move of this execution from where the caller saw it."""
    return Move(execution.pk, execution.status, execution.attempt, values)
