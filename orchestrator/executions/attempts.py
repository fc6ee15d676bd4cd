"""One attempt: claimed by its worker, finished by it, or ended from outside."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction

from orchestrator import publisher
from orchestrator.models import Execution, add_actions
from orchestrator.models.executions import ExecutionQuerySet
from orchestrator.reasons import Reason
from orchestrator.retry_policy import RetryPolicy
from orchestrator.state_machine import (
    ExecutionStatus,
    Move,
    transition_many,
)

WHILE_CANCELING = {
    Reason.RUN_TIMEOUT: Reason.CANCELLED_RUNNING,
    Reason.RUN_DEADLINE_PASSED: Reason.CANCEL_UNCONFIRMED,
}
"""What stopped an action that was to be stopped anyway. An action that came to an end of its own
before its worker heard of the cancel has that end, be it good or bad."""


def claim(
    attempts: Mapping[UUID, int], *, worker_id: int, incarnation: int, now: datetime, actor: str
) -> list[Execution]:
    """Take dispatched attempts for running; returns those that this worker may now start.

    Nothing else may be started. A message of an earlier attempt, a second copy, a cancelled or
    expired execution and a worker that was declared lost all end in the same way: not returned.
    """
    return add_actions(
        Execution.objects.claim(
            attempts,
            worker_id=worker_id,
            incarnation=incarnation,
            run_grace=timedelta(seconds=settings.MUSTER.run_grace_seconds),
            now=now,
            actor=actor,
        )
    )


def run_limit_seconds(execution: Execution) -> float:
    """How long a claimed execution may run: its timeout, cut short by its deadline."""
    assert execution.started_at is not None
    left = execution.deadline_at - execution.started_at
    return min(execution.timeout_seconds, left.total_seconds())


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


def end_all(
    overdue: ExecutionQuerySet, *, reason: Reason, detail: str, failed_by: str, now: datetime
) -> int:
    """End a query's executions batch by batch; returns how many. A batch in which nothing moved
    ends the loop: others are at work on the same rows, or will be asked again at the next tick."""
    total = 0
    size: int = settings.MUSTER.batch_size
    while True:
        batch = overdue.without_contents()[:size].with_actions()
        ended = end_attempts(batch, reason=reason, detail=detail, failed_by=failed_by, now=now)
        total += len(ended)
        if len(batch) < size or not ended:
            return total


def give_back(
    *,
    now: datetime,
    actor: str,
    worker_id: int | None = None,
    unstarted: Sequence[Execution] = (),
) -> set[UUID]:
    """Return what a worker claimed, or was to claim, and did not start, and, if `worker_id` says
    that it stops, all that was dispatched to it; returns their ids.

    That counts for no retry policy: nothing was tried. The messages stay in its queue, and the
    fence refuses them.
    """
    dispatched = Execution.objects.open().filter(status=ExecutionStatus.SCHEDULED)
    scheduled = dispatched.filter(worker_id=worker_id) if worker_id is not None else ()
    moves = [move(execution) for execution in (*scheduled, *unstarted)]
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
        policy = RetryPolicy.from_dict(execution.wanted_retries)
        if _may_retry(execution, policy, reason, now):
            groups["retry"].append(_retry(execution, policy, now, result_of(execution)))
        else:
            event = _terminal_event(execution.status, reason)
            groups[event].append(move(execution, result=result_of(execution)))
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
    stopped = reason in (Reason.CANCELLED_RUNNING, Reason.CANCEL_UNCONFIRMED)
    if status == ExecutionStatus.CANCELING and stopped:
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


def _retry(
    execution: Execution, policy: RetryPolicy, now: datetime, result: Mapping[str, Any]
) -> Move:
    delay_ms = policy.delay_ms(execution.retry_count + 1, random=random.random)
    return move(
        execution,
        retry_count=execution.retry_count + 1,
        next_retry_at=now + timedelta(milliseconds=delay_ms) if delay_ms else None,
        start_by=None,
        run_deadline_at=None,
        result=result,  # why this attempt ended, until the next one says something
    )


def _is_delayed(move: Move) -> bool:
    return move.values["next_retry_at"] is not None


def move(execution: Execution, **values: Any) -> Move:
    """A move of this execution from where the caller saw it."""
    return Move(execution.pk, execution.status, execution.attempt, values)
