"""Answers are sent, and noted once the broker has confirmed them.

Nothing is stored beforehand: a ticket that is not told, and whose execution is over, is due. A lost
hint costs one sweep. Two tellers at worst send a message twice, with the same `message_id`.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import structlog
from django.db import transaction
from django.db.models import Q

from orchestrator.core import publisher
from orchestrator.core.errors import MusterError
from orchestrator.core.lanes import RawMessage
from orchestrator.core.models.prepared import PreparedForIds
from orchestrator.queues.gates import choosing, metrics, replies
from orchestrator.queues.gates.replies import Kind, Reply
from orchestrator.queues.models import Gate, Ticket
from orchestrator.queues.models.tickets import TicketQuerySet

log = structlog.get_logger(__name__)

LEFT_TO_HOLDER = timedelta(seconds=2)
"""The keeper that holds a delivery hears of the end, and tells. Others wait for so long."""
LEASE = timedelta(seconds=10)
"""The time within which whoever sweeps a ticket tells it; then others may."""
LONGEST_PAUSE_SECONDS = 30
ERROR_MAX = 500
BODY_KEPT = Q(refusal__isnull=False)

Gates = Mapping[int, Gate]
"""By the id of their queue, each with its queue."""

NEEDED = (
    "execution__status",
    "execution__reason",
    "execution__ended_at",
    "execution__attempt",
    "execution__retry_count",
    "execution__cancel_reason",
    "execution__result",
    *(field.attname for field in Ticket._meta.concrete_fields),
)


def of_executions(ids: Collection[UUID], *, now: datetime) -> list[Ticket]:
    """The tickets of these executions that are due."""
    found = _over_of(ids)
    return [ticket for ticket in found if not ticket.next_tell_at or ticket.next_tell_at <= now]


def of_refused(ids: Collection[int], *, now: datetime) -> list[Ticket]:
    """Those of these tickets that are due."""
    return list(_over().due(now).filter(pk__in=ids))


def told_among(ids: Collection[int]) -> set[int]:
    """Those of these tickets that are told."""
    told = Ticket.objects.filter(pk__in=list(ids), told_at__isnull=False)
    return set(told.values_list("pk", flat=True)) if ids else set()


def claim_due(gate_ids: Collection[int], *, now: datetime, limit: int) -> list[Ticket]:
    """Take tickets that nobody told in time, so that no other keeper tells them too.

    On PostgreSQL, those that another keeper takes at this moment are skipped.
    """
    long_ago = now - LEFT_TO_HOLDER
    is_left = Q(refusal__isnull=False, created_at__lte=long_ago) | Q(
        execution__ended_at__lte=long_ago
    )
    with transaction.atomic():
        found = Ticket.objects.due(now).filter(is_left, gate__in=gate_ids).order_by("pk")
        locked = found.select_for_update(skip_locked=True, of=("self",), no_key=True)
        ids = list(locked.values_list("pk", flat=True)[:limit])
        Ticket.objects.filter(pk__in=ids).update(next_tell_at=now + LEASE)
    claimed = Ticket.objects.filter(pk__in=ids).select_related("execution").only(*NEEDED)
    return list(claimed)


def _over() -> TicketQuerySet:
    return Ticket.objects.over().select_related("execution").only(*NEEDED)


_over_of = PreparedForIds(lambda ids: _over().filter(execution__in=ids))


@dataclass
class _Telling:
    """A ticket on its way to being told."""

    ticket: Ticket
    gate: Gate
    owed: list[Reply]
    error: str = ""
    moves: bool = False
    took_seconds: float | None = None
    """From the end of its execution to the confirm of an answer that was sent just now."""

    def __post_init__(self) -> None:
        # Django has let it know its ticket, too: the two would stay until somebody looks for
        # garbage
        if self.ticket.execution is not None:
            self.ticket.execution._state.fields_cache.clear()

    def first(self) -> Iterable[Reply]:
        """The answer, or what stands for it, unless it was confirmed before."""
        if self.ticket.told_to:
            return []
        return [reply for reply in self.owed if reply.kind in (Kind.ANSWER, *MOVES)]

    def rest(self) -> Iterable[Reply]:
        """Copies and reports. After the answer: while that cannot be sent, each further try would
        add copies of them."""
        if self.error:
            return []
        return [reply for reply in self.owed if reply.kind not in (Kind.ANSWER, *MOVES)]


MOVES = (Kind.RETRY, Kind.MOVED)


@dataclass(frozen=True)
class Outcome:
    told: frozenset[int] = frozenset()
    """Tickets whose deliveries may be acknowledged."""
    untold: Mapping[int, str] = field(default_factory=dict)
    """Tickets that stay due, and why."""


def tell(tickets: Sequence[Ticket], *, gates: Gates, now: datetime) -> Outcome:
    """Send what is owed for these tickets, and note what the broker has confirmed.

    A ticket of which anything was not taken stays due, with the reason, and is told again after a
    pause. Raises the database's errors: then the answers were sent, and will be sent again.
    """
    tellings = [
        _Telling(ticket, gate, _owed(ticket, gate))
        for ticket in tickets
        if (gate := gates.get(ticket.gate_id)) is not None
    ]
    begun = time.monotonic()
    _send(tellings, _Telling.first)
    confirmed_at = now + timedelta(seconds=time.monotonic() - begun)
    for telling in tellings:
        if not telling.error and not telling.ticket.told_to:
            _note_answered(telling)
            telling.took_seconds = _seconds_since_end(telling.ticket, confirmed_at)
    _send(tellings, _Telling.rest)
    _mark(tellings, now)
    return Outcome(
        frozenset(telling.ticket.pk for telling in tellings if not telling.error),
        {telling.ticket.pk: telling.error for telling in tellings if telling.error},
    )


def tell_again(ids: Collection[int], *, gates: Gates) -> set[int]:
    """Send the answers of told tickets once more, for copies of their messages; returns the tickets
    whose answers were taken, that have none, or that were removed meanwhile."""
    tickets = list(Ticket.objects.filter(pk__in=ids).select_related("execution").only(*NEEDED))
    tellings = [
        _Telling(ticket, gate, [reply for reply in _owed(ticket, gate) if reply.kind == "answer"])
        for ticket in tickets
        if (gate := gates.get(ticket.gate_id)) is not None
    ]
    _send(tellings, lambda telling: telling.owed)
    removed = set(ids) - {ticket.pk for ticket in tickets}
    return removed | {telling.ticket.pk for telling in tellings if not telling.error}


def _owed(ticket: Ticket, gate: Gate) -> list[Reply]:
    return replies.replies_of(
        ticket, ticket.execution, gate=gate, retry_limit=choosing.retry_limit(gate)
    )


def _seconds_since_end(ticket: Ticket, confirmed_at: datetime) -> float | None:
    if not ticket.told_to or ticket.execution is None or ticket.execution.ended_at is None:
        return None
    return max(0.0, (confirmed_at - ticket.execution.ended_at).total_seconds())


def _note_answered(telling: _Telling) -> None:
    answered = [reply for reply in telling.owed if reply.kind in (Kind.ANSWER, *MOVES)]
    if answered:
        telling.ticket.told_to = answered[0].queue
        telling.moves = answered[0].moves


def _send(tellings: Sequence[_Telling], which: Any) -> None:
    """Send these replies, with one wait for confirms for each broker; errors are noted."""
    by_broker: dict[str, list[tuple[_Telling, Reply]]] = defaultdict(list)
    for telling in tellings:
        for reply in which(telling):
            by_broker[telling.gate.broker].append((telling, reply))
    for broker, pairs in by_broker.items():
        messages = [message_of(reply) for _, reply in pairs]
        try:
            fates = publisher.send_raw(messages, broker=broker)
        except MusterError as error:
            for telling, _ in pairs:
                telling.error = str(error)
            continue
        for (telling, reply), fate in zip(pairs, fates, strict=True):
            if not fate.is_taken and reply.is_required:
                telling.error = f"{reply.queue}: {fate.reason}"


def message_of(reply: Reply) -> RawMessage:
    return RawMessage(
        reply.body,
        reply.queue,
        headers=reply.headers,
        properties=reply.properties,
        mandatory=reply.is_required,
    )


def _mark(tellings: Sequence[_Telling], now: datetime) -> None:
    """Note what was told, and what was not and why: few statements for any number of tickets."""
    told: dict[tuple[str, bool], list[int]] = defaultdict(list)
    untold: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for telling in tellings:
        ticket = telling.ticket
        if telling.error:
            untold[telling.error, ticket.told_to, ticket.tell_tries].append(ticket.pk)
        else:
            told[ticket.told_to, telling.moves].append(ticket.pk)
    took = [each.took_seconds for each in tellings if each.took_seconds is not None]
    with transaction.atomic():
        if took:
            metrics.TELL_SECONDS.observe(("", seconds) for seconds in took)
        metrics.TOLD.add({"": sum(map(len, told.values()))} if told else {})
        metrics.FAILURES.add({"": sum(map(len, untold.values()))} if untold else {})
        for (queue, moves), ids in told.items():
            rows = Ticket.objects.untold().filter(pk__in=ids)
            moved = {"moved_at": now} if moves else {}
            values = {"told_at": now, "told_to": queue, "last_error": "", "next_tell_at": None}
            rows.filter(BODY_KEPT).update(**values, **moved)
            rows.exclude(BODY_KEPT).update(**values, **moved, body=None)
        for (error, queue, tries), ids in untold.items():
            pause = timedelta(seconds=min(2**tries, LONGEST_PAUSE_SECONDS))
            Ticket.objects.untold().filter(pk__in=ids).update(
                tell_tries=tries + 1,
                next_tell_at=now + pause,
                last_error=error[:ERROR_MAX],
                told_to=queue,
            )
    if untold:
        error, *_ = next(iter(untold))
        log.warning("answers not told, trying again", n=sum(map(len, untold.values())), why=error)
