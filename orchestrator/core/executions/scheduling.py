"""From the backlog to workers: what a message names, and what waits longest."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import transaction

from orchestrator.core import admission, clock, database, fleet, frame, queue_terms, tracing
from orchestrator.core.executions import assigning, dispatching, holding, queued
from orchestrator.core.models import Execution, backlog
from orchestrator.core.models.executions import ExecutionQuerySet
from orchestrator.core.models.prepared import PreparedForIds
from orchestrator.core.states import AttemptKey, Lane

log = structlog.get_logger(__name__)

SCREEN_SECONDS = 1.0
"""For so long one look at the backlog screens it: the rest has the next look."""


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
    if redelivered:
        sent = Execution.objects.filter(pk__in=execution_ids).unclaimed(now).without_contents()
        dispatching.redispatch(sent.with_actions(), now=now, actor=actor)
    placement.refresh(now=now)
    free = placement.free()
    if placement.seats and len(execution_ids) > free:
        # most would be read for nothing: the backlog knows which executions come first
        return not free or schedule_backlog(placement=placement, now=now, actor=actor, limit=free)
    ready = backlog.named(execution_ids, now=now)
    ready = holding.hand_over(ready, now=now, actor=actor)
    of_queues = [execution for execution in ready if execution.queue is not None]
    if not of_queues:
        return bool(assigning.place(ready, placement=placement, now=now, actor=actor).full)
    moment = clock.Running(now)
    others = [execution for execution in ready if execution.queue is None]
    left = bool(assigning.place(others, placement=placement, now=now, actor=actor).full)
    return queued.place(of_queues, placement=placement, now=moment(), actor=actor) or left


def schedule_backlog(*, placement: fleet.Placement, now: datetime, actor: str, limit: int) -> bool:
    """Give waiting executions to workers with room; returns True if more are waiting, or may be.

    Finds executions without a message: it was lost, the broker was down, or a retry is due. If
    limits refuse some, all that they refuse gets out of the way of the others first.
    """
    moment = clock.Running(now)
    placement.refused = 0
    left = _schedule_backlogs(placement=placement, now=now, actor=actor, limit=limit)
    if not placement.refused:
        return left
    _screen(moment, actor=actor)
    return _schedule_backlogs(placement=placement, now=moment(), actor=actor, limit=limit)


def _screen(moment: clock.Running, *, actor: str) -> None:
    """Let everything wait that a limit refuses now. There may be much of it, it is before others in
    the backlog, and a look reads no more of that than there is room for. What no worker runs starts
    nothing, so no limit concerns it."""
    size: int = settings.MUSTER.batch_size
    until = time.monotonic() + SCREEN_SECONDS
    while time.monotonic() < until:
        with transaction.atomic():
            database.hold_briefly()
            now = moment()
            started = Execution.objects.backlog(now).without_contents()
            started = started.exclude(action__runtime__in=list(frame.held_runtimes()))
            rows = admission.limits().narrow(started)
            batch = rows.locked_for_batch(size).with_actions()
            refused = assigning.screen(holding.without_held(batch), now=now, actor=actor)
        if len(batch) < size or not refused:
            break


def _schedule_backlogs(
    *, placement: fleet.Placement, now: datetime, actor: str, limit: int
) -> bool:
    """Give waiting executions to workers with room; returns True if more are waiting, or may be.

    Every queue with work gets an equal share of what is free, the default one among them, and what
    one leaves goes to the others.
    """
    # each part sends what it starts, and a broker that is frozen keeps it waiting for seconds
    moment = clock.Running(now)
    placement.refresh(now=now)
    _schedule_suspect(placement=placement, now=now, actor=actor)
    queues, full = queued.waiting(placement, moment())
    if not queues:
        left = _schedule_default(placement=placement, now=moment(), actor=actor, limit=limit)
        return left or bool(full)
    by: dict[str, Any] = {"placement": placement, "actor": actor}
    default_waits = True
    # with room for all of them the order does not matter, and what the default one leaves is known
    default_first = placement.is_even_turn or placement.free() > len(queues)
    while queues or default_waits:
        free = placement.free()
        for is_default in (True, False) if default_first else (False, True):
            share = _share(limit, placement, default_waits + len(queues))
            if is_default:
                share = _at_most(share, limit, placement)
                default_waits = default_waits and _schedule_default(limit=share, now=moment(), **by)
            else:
                most = min(limit, placement.free())
                more, at_limit = queued.schedule(queues, share=share, most=most, now=moment(), **by)
                queues = {name: terms for name, terms in queues.items() if name in more}
                full |= at_limit
        taken = free - placement.free()
        limit -= taken
        if taken <= 0 or limit <= 0:
            break
    return default_waits or bool(queues) or bool(full)


def _share(limit: int, placement: fleet.Placement, number: int) -> int:
    """The equal part of what is free, and of this batch, for so many queues."""
    return max(1, min(limit, placement.free()) // max(1, number))


def _at_most(share: int, limit: int, placement: fleet.Placement) -> int:
    """The share of the default queue, or all of the batch if its workers have no room: then only
    what none of them could ever run is looked at."""
    return share if any(placement.room().values()) else limit


def _schedule_suspect(*, placement: fleet.Placement, now: datetime, actor: str) -> None:
    """Start the suspect for which a worker is kept empty, if that belongs to a queue: it comes
    before all others."""
    if placement.suspect is None:
        return
    suspect = _suspect(placement.suspect, now).filter(queue__isnull=False)
    waiting = suspect.with_actions()
    if waiting:
        queued.place(waiting, placement=placement, now=now, actor=actor)


def _suspect(id: UUID, now: datetime) -> ExecutionQuerySet:
    return Execution.objects.filter(pk=id).backlog(now).without_contents()


def _schedule_default(*, placement: fleet.Placement, now: datetime, actor: str, limit: int) -> bool:
    """Do this for the default queue."""
    moment = clock.Running(now)
    look = assigning.Look()
    is_full = False
    while True:
        room = placement.room()
        choice = backlog.Choice(
            runtimes=[runtime for runtime, free in room.items() if free > 0],
            known_runtimes=[*room, *frame.held_runtimes()],
            paused_actions=placement.paused_actions(),
            without=placement.suspect,
            busy=look.busy,
        )
        # no more than there is room for: an execution that is locked and not placed delays those
        # behind it
        most = min(limit, max(room.values(), default=0) or limit)
        waiting, unplaced = _place_default(
            choice, placement=placement, now=moment(), actor=actor, limit=most
        )
        limit -= len(waiting) - len(unplaced.all)
        is_full = is_full or bool(unplaced.full)
        if len(waiting) < most:
            return is_full  # what waits for a worker to come is not helped by the end of another
        if limit <= 0 or not any(placement.room().values()) or not look.goes_on(unplaced):
            return True


def _place_default(
    choice: backlog.Choice, *, placement: fleet.Placement, now: datetime, actor: str, limit: int
) -> tuple[list[Execution], assigning.Unplaced]:
    """Place the most urgent executions of the default queue; returns those that were looked at, and
    those of them that got no worker."""
    with transaction.atomic():
        database.hold_briefly()
        waiting: list[Execution] = []
        if placement.suspect:
            # a worker is kept empty for the suspect: it comes before all others
            suspect = _suspect(placement.suspect, now).in_queue(None)
            if paused := choice.paused_actions:
                suspect = suspect.exclude(action_ref__in=paused)
            waiting += suspect.locked_for_batch(1).with_actions()
        waiting += backlog.first_of_default(choice, limit=limit, now=now)
        unplaced = assigning.place(
            holding.without_held(waiting), placement=placement, now=now, actor=actor, postpone=True
        )
    return waiting, unplaced


_ends = PreparedForIds(
    lambda ids: Execution.objects.filter(pk__in=ids, ended_at__isnull=False).values_list(
        "pk", "attempt", "worker_id", "action_ref", "status", "reason", "queue", "lane"
    )
)


def note_completed(execution_ids: Sequence[UUID], *, placement: fleet.Placement) -> int:
    """Free the places of executions that ended, and log how many ended in which way.

    Returns how many places became free. Safe to run twice: placement reads the truth again
    each second.
    """
    began_ns = tracing.clock_ns()
    freed = 0
    counts: Counter[tuple[str, str, str]] = Counter()
    keys: list[AttemptKey] = []
    for pk, attempt, worker_id, action_ref, status, reason, queue, lane in _ends(execution_ids):
        keys.append((pk, attempt))
        counts[action_ref, status, reason] += 1
        if worker_id is not None:
            name = queue_terms.subscription(queue, is_retry=lane == Lane.RETRY)
            placement.finished(worker_id, name)
            freed += 1
    for (action_ref, status, reason), number in counts.items():
        log.info("executions ended", action=action_ref, status=status, reason=reason, n=number)
    tracing.completed(keys, began_ns=began_ns)
    return freed


def note_ended(execution_ids: Sequence[UUID], *, now: datetime) -> int:
    """Make what waited for the limits of these, which ended, due; returns how many. Safe to run
    twice."""
    return admission.limits().ended(execution_ids, now=now)
