"""Deliveries of a gate become tickets and executions, a batch in one transaction.

From the commit on, Muster answers for a task. Until then, its message stays unacknowledged.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID, uuid4

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Q

from orchestrator.core import dead_letters, executions, investigations, json_values
from orchestrator.core.copying import insert_many
from orchestrator.core.errors import Unavailable
from orchestrator.core.executions import RequestRefused
from orchestrator.core.models import DLQEntry, Execution
from orchestrator.core.models.prepared import Prepared
from orchestrator.queues.gates import choosing, jobs, judging, metrics, replies, shape, tracking
from orchestrator.queues.gates import headers as names
from orchestrator.queues.gates.judging import Delivery, Does, Verdict
from orchestrator.queues.gates.problems import Problem, described
from orchestrator.queues.models import Gate, Ticket
from orchestrator.queues.models.tickets import TicketQuerySet

TRIES = 5
"""Two keepers may take in copies of one message at the same moment: the second looks again."""

TOLD_APART = ("pk", "task_id", "digest", "execution_id", "told_at", "tries")
"""The columns that say what a ticket is of, and what became of it."""


class QueueClosed(Unavailable):
    """The queue has just been closed: its messages are left to the broker."""


Key = tuple[str, str]
"""The id of a task, and a digest."""


@dataclass(frozen=True)
class Taken:
    """The outcome of a delivery."""

    verdict: Verdict
    ticket_id: int | None = None
    execution_id: UUID | None = None
    """Of a ticket that is not told: the execution whose end it waits for."""


def deliver(
    body: bytes,
    headers: Mapping[str, Any],
    properties: Mapping[str, Any],
    *,
    redelivered: bool,
    died_of: str = "",
) -> Delivery:
    """Read what the broker delivered. It raises nothing, whatever the bytes are."""
    reading = shape.read(body, headers, properties, most_bytes=settings.MUSTER.max_request_bytes)
    return Delivery(body, headers, properties, redelivered, reading, died_of)


def take_in(
    deliveries: Sequence[Delivery],
    *,
    gate: Gate,
    holder: str,
    now: datetime,
    undeliverable: str = "",
) -> list[Taken]:
    """Judge these deliveries and write what follows; returns what became of each.

    `undeliverable`: why messages to another queue could not be forwarded, if they could not; then
    they are refused. Raises QueueClosed, and the database's errors: then nothing was written.
    """
    for tried in range(TRIES):
        try:
            with transaction.atomic():
                return _Batch(deliveries, gate, holder, now, undeliverable).written()
        except IntegrityError:
            if tried == TRIES - 1:
                raise
    raise AssertionError("unreachable")


def _tickets(gate_id: int, task_ids: Collection[str], digests: Collection[str]) -> TicketQuerySet:
    """Those that are known of such tasks, and of those that were moved what was taken in."""
    of_tasks = Q(gate=gate_id, task_id__in=task_ids, digest__in=digests)
    # each has an index of its own
    either = Q(of_tasks, moved_at__isnull=True)
    either |= Q(of_tasks, moved_at__isnull=False, refusal__isnull=True)
    return Ticket.objects.filter(either).only(*TOLD_APART, "moved_at").order_by("pk")


_tickets_of = Prepared(
    lambda gate_id, task_id, digest: _tickets(gate_id, [task_id], [digest]),
    *(-1, "a task", "a digest"),
)
"""While little comes, messages come one at a time."""


@dataclass
class _Row:
    """A ticket that is to be inserted."""

    position: int
    delivery: Delivery
    verdict: Verdict
    key: Key
    ticket: Ticket | None = None


class _Batch:
    """Deliveries of one gate, on their way to rows."""

    def __init__(
        self,
        deliveries: Sequence[Delivery],
        gate: Gate,
        holder: str,
        now: datetime,
        undeliverable: str,
    ) -> None:
        self.deliveries, self.gate, self.holder, self.now = deliveries, gate, holder, now
        self.undeliverable = undeliverable
        self.limit = choosing.retry_limit(gate)
        self.rows: list[_Row] = []
        self.by_key: dict[Key, _Row] = {}
        self.same_as: dict[int, _Row] = {}
        """Refused copies by their place, and the refusal of the same batch that is theirs, too."""
        self.continued: dict[Key, int] = {}
        """The tickets of the same tasks before they were moved to another queue."""

    def written(self) -> list[Taken]:
        """1. look up tickets; 2. judge; 3. look up earlier refusals; 4. write; 5. tell of each.

        A ticket whose task went on through the retry queue is no ticket of what came from there.
        """
        keys = [accepted_key(delivery) for delivery in self.deliveries]
        known = self._earlier([key for key in keys if key is not None])
        self._move(keys, known)
        verdicts = [
            self._judged(position, delivery, key, known)
            for position, (delivery, key) in enumerate(zip(self.deliveries, keys, strict=True))
        ]
        copies = self._copies_of_refusals()
        self._insert()
        rows = {row.position: row for row in self.rows}
        outcomes = []
        for position, (verdict, key) in enumerate(zip(verdicts, keys, strict=True)):
            if position in copies:
                outcomes.append(copies[position])
            elif position in self.same_as:
                attached = replace(verdict, does=Does.ATTACH)
                outcomes.append(self._taken(attached, self.same_as[position]))
            elif verdict.does in (Does.ATTACH, Does.ANSWER_AGAIN) and key in known:
                outcomes.append(Taken(verdict, known[key].pk, known[key].execution_id))
            else:
                if verdict.does is Does.ATTACH and key is not None:
                    row = self.by_key.get(key)
                else:
                    row = rows.get(position)
                outcomes.append(self._taken(verdict, row))
        # last in its transaction: other keepers count the same
        metrics.DELIVERIES.add(Counter(each.verdict.does.value for each in outcomes))
        return outcomes

    def _taken(self, verdict: Verdict, row: _Row | None) -> Taken:
        if row is None or row.ticket is None:
            return Taken(verdict)
        return Taken(verdict, row.ticket.pk, row.ticket.execution_id)

    # --- judging ---

    def _earlier(self, keys: Sequence[Key]) -> dict[Key, Ticket]:
        """The tickets that are known of these. Notes in `continued` which of their tasks were
        moved."""
        found = self._tickets(keys)
        self.continued = {key_of(each): each.pk for each in found if each.moved_at is not None}
        return {key_of(each): each for each in found if each.moved_at is None}

    def _known(self, keys: Sequence[Key]) -> dict[Key, Ticket]:
        """The tickets of earlier copies that were not moved to another queue."""
        return {key_of(each): each for each in self._tickets(keys) if each.moved_at is None}

    def _tickets(self, keys: Sequence[Key]) -> list[Ticket]:
        if not keys:
            return []
        if len(keys) == 1:
            return _tickets_of(self.gate.pk, *keys[0])
        task_ids, digests = zip(*keys, strict=True)
        return list(_tickets(self.gate.pk, set(task_ids), set(digests)))

    def _move(self, keys: Sequence[Key | None], known: dict[Key, Ticket]) -> None:
        """Note for whoever published a message to the retry queue that its task went there, where
        the message came before that was noted. Attached to that ticket it would be acknowledged
        with it, and nobody would have the task any more."""
        if self.gate.retry_by != Gate.RetryBy.QUEUE:
            return
        counted = {
            known[key].pk: key
            for key, delivery in zip(keys, self.deliveries, strict=True)
            if key is not None
            and key in known
            and known[key].told_at is None
            and delivery.reading.tries > known[key].tries
        }
        for ticket in Ticket.objects.filter(pk__in=list(counted)).select_related("execution"):
            ended = ticket.execution
            if ended is None or ended.ended_at is None:
                continue
            if replies.goes_back(ticket, ended, gate=self.gate, retry_limit=self.limit):
                del known[counted[ticket.pk]]
                self.continued[counted[ticket.pk]] = ticket.pk
                Ticket.objects.filter(pk=ticket.pk, moved_at__isnull=True).update(
                    moved_at=self.now,
                    told_at=self.now,
                    told_to=self.gate.retries_go_to,
                    last_error="",
                    next_tell_at=None,
                    body=None,
                )

    def _judged(
        self, position: int, delivery: Delivery, key: Key | None, known: Mapping[Key, Ticket]
    ) -> Verdict:
        earlier = known.get(key) if key else None
        if earlier is None and key in self.by_key:
            return Verdict(Does.ATTACH)  # a copy in the same batch
        verdict = judging.judge(
            delivery,
            gate=self.gate,
            retry_limit=self.limit,
            known=earlier,
            fits=partial(choosing.fits, gate=self.gate),
        )
        if verdict.does is Does.FORWARD and self.undeliverable:
            problem = Problem("/to", self.undeliverable)
            verdict = Verdict(Does.REFUSE, (problem,), names.INVALID, verdict.tries)
        if verdict.does is Does.TAKE_IN and key is not None:
            self.by_key[key] = self._note(position, delivery, verdict, key)
        elif verdict.does is Does.REFUSE:
            self._note(position, delivery, verdict, refused_key(delivery))
        return verdict

    def _note(self, position: int, delivery: Delivery, verdict: Verdict, key: Key) -> _Row:
        row = _Row(position, delivery, verdict, key)
        self.rows.append(row)
        return row

    # --- refusals ---

    def _copies_of_refusals(self) -> dict[int, Taken]:
        """Refused deliveries whose refusal is written already: a redelivered copy is answered once
        more, or waits for the answer. One that was sent again on purpose is refused again.

        What came through the retry queue may be there twice: who published it there died before
        its acknowledgement of the original, or never heard the broker's confirm. All of these are
        one message.
        """
        refused = [row for row in self.rows if row.verdict.does is Does.REFUSE]
        known = self._known([row.key for row in refused])
        copies: dict[int, Taken] = {}
        first: dict[Key, _Row] = {}
        superseded = []
        for row in refused:
            ticket = known.get(row.key)
            is_copy = row.delivery.redelivered or row.verdict.tries > 0
            if ticket is not None and (ticket.told_at is None or is_copy):
                is_open = ticket.told_at is None or row.delivery.died_of
                does = Does.ATTACH if is_open else Does.ANSWER_AGAIN
                copies[row.position] = Taken(replace(row.verdict, does=does), ticket.pk)
            elif row.key in first and is_copy:
                self.same_as[row.position] = first[row.key]
            elif row.key in first:
                # the very same bytes twice in a batch: each is answered
                row.key = (row.key[0], _hashed(row.key[1].encode(), uuid4().bytes))
            else:
                first[row.key] = row
                if ticket is not None:
                    superseded.append(ticket.pk)
        self.rows = [
            row
            for row in self.rows
            if row.position not in copies and row.position not in self.same_as
        ]
        if superseded:
            Ticket.objects.filter(pk__in=superseded).update(moved_at=self.now)
        return copies

    # --- writing ---

    def _insert(self) -> None:
        # in one order: two keepers with the same messages do not wait for each other in a circle
        rows = sorted(self.rows, key=lambda row: row.key)
        taken = [row for row in rows if row.verdict.does is Does.TAKE_IN]
        accepted = self._request(taken) if taken else {}
        jobs.hold_back(
            [accepted[row.position].pk for row in taken if self._asks_about_job(row)], now=self.now
        )
        tickets = [self._ticket(row, accepted.get(row.position)) for row in rows]
        insert_many(tickets)
        without_id = [
            row.key for row, ticket in zip(rows, tickets, strict=True) if ticket.pk is None
        ]
        written = self._known(without_id)
        for row, ticket in zip(rows, tickets, strict=True):
            row.ticket = written.get(row.key, ticket)
        investigations.keep([self._entry(row) for row in rows if self._is_kept(row)])

    def _request(self, rows: Sequence[_Row]) -> dict[int, Execution]:
        news = []
        for row in rows:
            assert row.delivery.reading.message is not None
            news.append(
                choosing.new_execution(
                    row.delivery.reading.message,
                    gate=self.gate,
                    action_ref=row.verdict.action_ref,
                    parameters=row.verdict.parameters,
                    tries=row.verdict.tries,
                )
            )
        askers = [_asker(row.delivery.properties) for row in rows]
        try:
            made = executions.request_many(news, requested_by=askers, now=self.now)
        except RequestRefused as refused:
            if all(refusal.pointer == "/queue" for refusal in refused.refusals):
                raise QueueClosed from refused
            raise
        return {row.position: execution for row, execution in zip(rows, made, strict=True)}

    def _ticket(self, row: _Row, execution: Execution | None) -> Ticket:
        delivery, (task_id, digest) = row.delivery, row.key
        return Ticket(
            gate=self.gate,
            task_id=task_id,
            digest=digest,
            tries=row.verdict.tries,
            body=delivery.body,
            headers=json_values.storable(delivery.headers),
            properties=json_values.storable(delivery.properties),
            envelope=delivery.reading.envelope,
            # the id alone: who knows its execution is known by it, and the two would stay until
            # somebody looks for garbage
            execution_id=execution.pk if execution else None,
            job_status=jobs.UNKNOWN if execution and self._asks_about_job(row) else "",
            refusal=None if execution else _refusal(row),
            continues_id=self.continued.get(row.key),
            holder=self.holder,
            held_at=self.now,
            created_at=self.now,
        )

    def _asks_about_job(self, row: _Row) -> bool:
        followed = row.delivery.reading.envelope.get("tracking")
        return self.gate.status_check and tracking.is_to_be_checked(followed, now=self.now)

    def _is_kept(self, row: _Row) -> bool:
        """True of a refusal that somebody should look at: of an unusable message, or of one that
        nobody has once its ticket is pruned. Who sent what died in its queue may have the
        answer."""
        verdict = row.verdict
        if verdict.does is not Does.REFUSE:
            return False
        if not verdict.rejected:
            return not replies.answer_queue(row.delivery.properties, self.gate)
        return verdict.rejected == names.INVALID or not self.gate.rejected_queue

    def _entry(self, row: _Row) -> DLQEntry:
        return entry(
            row.delivery,
            gate=self.gate,
            reason=_reason(row),
            detail=f"task message refused: {described(row.verdict.problems)}"[:2_000],
            now=self.now,
        )


def entry(
    delivery: Delivery, *, gate: Gate, reason: DLQEntry.Reason, detail: str, now: datetime
) -> DLQEntry:
    """A dead letter with the bytes of a message that this gate did not take in."""
    return DLQEntry(
        dlq_reason=reason,
        detail=detail,
        dlq_timestamp=now,
        opened_by="gate",
        original_queue=gate.input_queue,
        original_routing_key=gate.input_queue,
        headers=json_values.storable(delivery.headers),
        x_death=[],
        raw_body=delivery.body,
        fingerprint=refused_key(delivery)[1],
    )


def key_of(ticket: Ticket) -> Key:
    return ticket.task_id, ticket.digest


def accepted_key(delivery: Delivery) -> Key | None:
    """The key of a message's ticket; None if it cannot be read."""
    message = delivery.reading.message
    return None if message is None else (message.task_id, message.digest)


def refused_key(delivery: Delivery) -> Key:
    """The key of a refusal. Never that of a ticket: what is refused now may be taken in later, when
    the gate has another definition, or when its owner sends it."""
    user = str(delivery.properties.get("user_id") or "").encode()
    return delivery.reading.task_id, _hashed(b"refused", user, delivery.body)


def _hashed(*parts: bytes) -> str:
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(len(part).to_bytes(8, "big") + part)
    return hashed.hexdigest()


def _reason(row: _Row) -> DLQEntry.Reason:
    """The reason of an entry; what died in its queue has that of any other dead letter."""
    if row.verdict.rejected == names.EXCEEDED:
        return DLQEntry.Reason.RETRIES_EXCEEDED
    if row.verdict.rejected == names.INVALID:
        return DLQEntry.Reason.MESSAGE_INVALID
    reasons = dead_letters.REASONS
    return reasons.get(row.delivery.died_of, reasons["rejected"])[1]


def _refusal(row: _Row) -> dict[str, Any]:
    refusal: dict[str, Any] = {
        "rejected": row.verdict.rejected,
        "problems": [
            {"pointer": problem.pointer, "text": problem.text} for problem in row.verdict.problems
        ],
    }
    died_of = row.delivery.died_of
    return refusal | {"died_of": died_of} if died_of else refusal


def _asker(properties: Mapping[str, Any]) -> str:
    """RabbitMQ has checked the user, if the message names one."""
    user = properties.get("user_id")
    return f"amqp:{json_values.storable(user)}"[:150] if user else "amqp"
