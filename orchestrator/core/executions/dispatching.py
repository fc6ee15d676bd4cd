"""Send attempts that the database has given to workers, and settle those that cannot be sent."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import structlog
from django.conf import settings
from django.db import transaction

from orchestrator.core import database, investigations, messages, publisher, topology, tracing
from orchestrator.core.declarations import TopologyDiffers
from orchestrator.core.executions.attempts import end_attempts
from orchestrator.core.executions.subjects import subjects
from orchestrator.core.models import DLQEntry, Execution, Worker
from orchestrator.core.reasons import Reason
from orchestrator.core.state_machine import Move
from orchestrator.core.states import AttemptKey, ExecutionStatus

log = structlog.get_logger(__name__)

BROKER_PAUSE = timedelta(seconds=1)
"""The pause before a failed dispatch is tried again."""

UNDECLARABLE_PAUSE = timedelta(seconds=10)
"""The same pause, where the broker refuses the worker's queue: an operator must act first."""

UNCLAIMED_SECONDS = 10.0
"""A worker with a free slot claims within milliseconds of a dispatch."""

UNSENT_SECONDS = 2.0
"""The same, for what was placed as it was accepted: its message is sent after the answer, and is
lost with its process."""

FULL = "every worker that could run it holds all that it may: see their capacity"
"""The `wait_reason` of what waits for room."""

COMPLAIN_EVERY_SECONDS = 60.0
_complained_at = float("-inf")


class Dispatch(NamedTuple):
    """An attempt that the database has given to a worker, and that is to be sent to it."""

    execution: Execution
    """As it was read, at this attempt or before it."""
    attempt: int
    worker_id: int

    @property
    def key(self) -> AttemptKey:
        return self.execution.pk, self.attempt

    @classmethod
    def of(cls, execution: Execution) -> Dispatch:
        """The dispatch of a scheduled execution."""
        return cls(execution, execution.attempt, execution.worker_id or 0)

    def given_back(self, *, again_at: datetime) -> Move:
        values = {"next_retry_at": again_at}
        return Move(self.execution.pk, ExecutionStatus.SCHEDULED, self.attempt, values)


def start_by(execution: Execution, now: datetime) -> datetime:
    """The latest moment for the claim of what is given to a worker now."""
    grace_seconds = settings.MUSTER.start_grace_seconds
    wait = timedelta(milliseconds=execution.dispatch_ttl_ms, seconds=grace_seconds)
    return min(now + wait, execution.deadline_at)


def dispatch(dispatches: Sequence[Dispatch], *, now: datetime, actor: str) -> None:
    """Send each to its worker's queue, those of a worker together; give back at once those that
    cannot be sent."""
    began_ns = tracing.clock_ns()
    sent = {message.id: (message, theirs) for message, theirs in messages_for(dispatches)}
    try:
        returned = publisher.send([message for message, _ in sent.values()])
    except publisher.BrokerUnavailable as error:
        log.warning("dispatch failed, giving back", error=error, n=len(dispatches))
        Execution.objects.transition_many(
            "give_back",
            [each.given_back(again_at=now + BROKER_PAUSE) for each in dispatches],
            now=now,
            actor=actor,
            reason=Reason.DISPATCH_FAILED,
        )
        failed = [each.key for each in dispatches]
        tracing.dispatched(failed, began_ns=began_ns, fault=Reason.DISPATCH_FAILED)
        return
    tracing.dispatched((each.key for each in dispatches), began_ns=began_ns)
    without_queue = [each for message in returned for each in sent[message.id][1]]
    if without_queue:
        _settle_unroutable(without_queue, now=now, actor=actor)


def dispatch_again(*, now: datetime, actor: str) -> int:
    """Send again what was dispatched and is not claimed; returns how many.

    For an executor that starts, or has the broker back: an executor may have died between its
    commit and its publish, and the broker may have lost messages. No worker holds more of them than
    its window, and only one message of an attempt passes the claim.
    """
    waiting = Execution.objects.unclaimed(now).without_contents().with_actions()
    size: int = settings.MUSTER.batch_size
    for start in range(0, len(waiting), size):
        redispatch(waiting[start : start + size], now=now, actor=actor)
    return len(waiting)


def dispatch_unclaimed(*, now: datetime, actor: str) -> int:
    """Send again what a worker with a free slot has not claimed for a while; returns how many.
    Otherwise it would wait until `start_by`.

    An executor may have died between its commit and its publish, or the broker may have lost the
    message. Otherwise the claim refuses the second copy. Each wait is twice as long as the one
    before, so there are never more than a few copies.
    """
    waiting = Execution.objects.unclaimed(now)
    waiting = waiting.dispatched_for(timedelta(seconds=UNCLAIMED_SECONDS), now) | (
        waiting.placed_at_once().dispatched_for(timedelta(seconds=UNSENT_SECONDS), now)
    )
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
    # a row that somebody holds cannot be claimed either, and would get a copy at each tick
    noted = again.update_unheld(dispatched_again_at=now)
    redispatch([each for each in due if each.pk in noted], now=now, actor=actor)
    if noted:
        log.warning("unclaimed executions dispatched again", n=len(noted))
    return len(noted)


def redispatch(executions: Iterable[Execution], *, now: datetime, actor: str) -> None:
    """Send these scheduled executions again."""
    dispatch([Dispatch.of(execution) for execution in executions], now=now, actor=actor)


def _is_due_again(execution: Execution, now: datetime) -> bool:
    first, last = execution.scheduled_at, execution.dispatched_again_at
    if first is None or last is None or last < first:  # not in this attempt
        return True
    return now - last >= last - first


def messages_for(
    dispatches: Iterable[Dispatch],
) -> Iterator[tuple[messages.Message, Sequence[Dispatch]]]:
    """The messages for these, each with what it dispatches: a list for each worker, and one alone
    for each execution with a TTL of its own, as RabbitMQ expires whole messages."""
    together: dict[int, list[Dispatch]] = defaultdict(list)
    for each in dispatches:
        ttl_ms = each.execution.dispatch_ttl_ms
        if ttl_ms < settings.MUSTER.worker_queue_ttl_ms:
            yield messages.dispatch([each.key], worker_id=each.worker_id, ttl_ms=ttl_ms), [each]
        else:
            together[each.worker_id].append(each)
    for worker_id, theirs in together.items():
        for start in range(0, len(theirs), messages.MOST_ATTEMPTS):
            part = theirs[start : start + messages.MOST_ATTEMPTS]
            yield messages.dispatch([each.key for each in part], worker_id=worker_id), part


# --- workers without a queue ---------------------------------------------------------------------


def _settle_unroutable(dispatches: Sequence[Dispatch], *, now: datetime, actor: str) -> None:
    """Settle dispatches for which the broker has no queue.

    A retired worker has none on purpose: what is pinned to one ends. Everything else is given back,
    which no policy counts, after its queue is declared again. If that is not possible, it is tried
    less often, until its deadline.
    """
    ids = {each.worker_id for each in dispatches}
    retired = set(
        Worker.objects.filter(pk__in=ids, retired_at__isnull=False).values_list("pk", flat=True)
    )
    hopeless = [each for each in dispatches if each.execution.pinned_worker_id in retired]
    if hopeless:
        _end_unroutable(hopeless, now=now)
    others = [each for each in dispatches if each.execution.pinned_worker_id not in retired]
    pause = _declare_queues({each.worker_id for each in others} - retired)
    Execution.objects.transition_many(
        "give_back",
        [each.given_back(again_at=now + pause) for each in others],
        now=now,
        actor=actor,
        reason=Reason.UNROUTABLE,
    )


def _declare_queues(worker_ids: Collection[int]) -> timedelta:
    """Declare the queues of these workers again; returns the pause before they are used."""
    try:
        publisher.make_whole(topology.dispatch_key(worker_id) for worker_id in worker_ids)
    except publisher.BrokerUnavailable as error:
        log.warning("queues of workers not declared", error=error)
    except TopologyDiffers as differs:
        _complain(differs)
        return UNDECLARABLE_PAUSE
    return BROKER_PAUSE


def _complain(differs: TopologyDiffers) -> None:
    """Log it at most once a minute: every execution would repeat it."""
    global _complained_at
    if time.monotonic() - _complained_at > COMPLAIN_EVERY_SECONDS:
        _complained_at = time.monotonic()
        log.error("a worker's queue cannot be declared", differs=str(differs))


def _end_unroutable(dispatches: Sequence[Dispatch], *, now: datetime) -> None:
    """End attempts that will never have a queue, and open an investigation for each."""
    detail = "the worker that it is pinned to is retired and no longer has a queue"
    attempts = {each.execution.pk: each.attempt for each in dispatches}
    rows = Execution.objects.filter(pk__in=attempts, status=ExecutionStatus.SCHEDULED)
    with transaction.atomic():
        database.hold_briefly()
        candidates = rows.select_related("worker").defer("result").with_actions()
        dispatched = [row for row in candidates if row.attempt == attempts[row.pk]]
        ended = end_attempts(
            dispatched, reason=Reason.UNROUTABLE, detail=detail, failed_by="executor", now=now
        )
        investigations.open_for(
            subjects([execution for execution in dispatched if execution.pk in ended]),
            reason=DLQEntry.Reason.UNROUTABLE,
            detail=detail,
            now=now,
            actor="executor",
        )
