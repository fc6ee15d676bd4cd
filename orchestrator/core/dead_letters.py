"""Dead letters: drain, settle, and keep those that somebody should look at.

A letter is acknowledged only after its effect is committed. It may be stale: TTL runs while a
message is ready, so its execution may have been claimed elsewhere, ended, or be at a later attempt.
Status and attempt are compared, and a stale letter changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import DataError, transaction
from kombu import Connection, Consumer
from kombu.message import Message

from orchestrator.core import (
    brokers,
    clock,
    database,
    declarations,
    executions,
    frame,
    investigations,
    json_values,
    messages,
    metrics,
    topology,
)
from orchestrator.core.executions import logged
from orchestrator.core.investigations import Subject
from orchestrator.core.models import DLQEntry, Execution
from orchestrator.core.models.dead_letters import FAILED_BY
from orchestrator.core.reasons import Reason
from orchestrator.core.states import AttemptKey, ExecutionStatus

log = structlog.get_logger(__name__)

QUIET_SECONDS = 0.2
"""The queue counts as empty after this time without a letter."""

OF_A_DEATH = ("x-death", "x-first-death-", "x-last-death-", "x-delivery-count")
"""Prefixes of the headers in which the broker records the death of a letter."""

REASONS = {
    "expired": (Reason.QUEUE_TTL_EXPIRED, DLQEntry.Reason.QUEUE_TTL_EXPIRED),
    # its consumer could not use it, or crashed on it as often as a quorum queue allows
    "rejected": (Reason.MESSAGE_REJECTED, DLQEntry.Reason.MESSAGE_INVALID),
    "delivery_limit": (Reason.MESSAGE_REJECTED, DLQEntry.Reason.RETRIES_EXCEEDED),
}


@dataclass(frozen=True)
class Drained:
    """The outcome of one drain, in numbers of attempts, and of letters that name none."""

    settled: int = 0
    """Ended or retried, and kept as an entry."""
    returned: int = 0
    """Returned to the backlog: the worker was busy, or another could take it."""
    stale: int = 0
    """No longer waiting at that attempt: only acknowledged."""
    unreadable: int = 0
    """Kept with their raw bytes."""
    answered: int = 0
    """Foreign messages, whose senders are answered by the app that they belong to."""

    def __add__(self, other: Drained) -> Drained:
        return Drained(
            self.settled + other.settled,
            self.returned + other.returned,
            self.stale + other.stale,
            self.unreadable + other.unreadable,
            self.answered + other.answered,
        )


@dataclass(frozen=True)
class Letter:
    """A dead letter, read as far as it can be."""

    raw_body: bytes
    headers: dict[str, Any]
    x_death: list[dict[str, Any]]
    task: str
    attempts: Sequence[AttemptKey]
    """Those that it was to dispatch, if it is a dispatch."""
    problem: str
    """The problem of a letter that could not be read; empty if it could."""
    properties: Mapping[str, Any] = field(default_factory=dict)
    """AMQP's, without the headers."""
    broker: str = brokers.DEFAULT
    """The alias of the broker that it lay in."""
    is_redelivered: bool = False

    @property
    def died_in(self) -> str:
        """The queue that it died in."""
        return str(self.x_death[0].get("queue", "")) if self.x_death else ""

    @property
    def died_of(self) -> str:
        return str(self.x_death[0].get("reason", "")) if self.x_death else ""

    @property
    def died_at(self) -> datetime | None:
        """The time at which the broker moved it to the dead letters, if its header says so."""
        try:
            return datetime.fromisoformat(self.x_death[0]["time"]).replace(tzinfo=UTC)
        except (IndexError, KeyError, TypeError, ValueError):
            return None

    @property
    def fingerprint(self) -> str:
        """Equal for every copy of a letter that names no attempt, so that draining it again finds
        its entry: the same bytes and the same headers, without those of the broker, and the same
        queue in which it died. There are few of those."""
        own = {
            name: value for name, value in self.headers.items() if not name.startswith(OF_A_DEATH)
        }
        headers = json.dumps(own, sort_keys=True).encode()
        parts = (self.raw_body, headers, self.died_in.encode())
        return hashlib.sha256(b"\0".join(parts)).hexdigest()


def drain(
    *,
    read_clock: Callable[[], datetime] = clock.now,
    limit: int = 100_000,
    broker: str = brokers.DEFAULT,
) -> Drained:
    """Settle the dead letters that wait now in a broker, in batches; returns the outcome.

    In a broker of gates, no letter is taken for one of Muster's own messages.
    Each batch reads the clock: a drain may take long, and the last letters may be about executions
    accepted after it began. Raises the errors of broker and database: then nothing of that batch is
    acknowledged, and the next drain gets the letters again.
    """
    total = Drained()
    taken = 0
    with _opened(broker) as link:
        for batch in _batches(link):
            letters = [read(message, broker=broker) for message in batch]
            total += settle(letters, now=read_clock())
            batch[-1].ack(multiple=True)
            taken += len(batch)
            if taken >= limit:
                break
    if total != Drained():
        log.info("dead letters drained", **asdict(total))
    return total


@contextmanager
def _opened(broker: str) -> Iterator[Connection]:
    """A connection to a broker that has a queue for dead letters."""
    if broker == brokers.DEFAULT:
        with brokers.connection() as link:
            declarations.declare(link, [])
            yield link
        return
    with brokers.connection(broker) as link:
        with declarations.throw_away(link) as channel:
            topology.declare_dead_letters(channel)
        yield link


def _batches(link: Any) -> Iterator[list[Message]]:
    """Take the queue in batches until it is quiet. Bounded by prefetch, unlike SimpleQueue."""
    size = 2 * settings.MUSTER.batch_size
    channel = link.channel()
    received: list[Message] = []
    consumer = Consumer(
        channel,
        queues=[topology.dead_letter_queue().queue()],
        on_message=received.append,
        accept=None,
        prefetch_count=size,
        auto_declare=False,
    )
    with consumer:
        while True:
            try:
                while len(received) < size:
                    link.drain_events(timeout=QUIET_SECONDS)
            except (TimeoutError, socket.timeout):  # noqa: UP041 - kombu's virtual transports
                pass
            if not received:
                return
            batch = received[:]
            received.clear()
            yield batch


def read(message: Message, *, broker: str = brokers.DEFAULT) -> Letter:
    """Read a dead letter without trusting any part of it."""
    headers = json_values.storable(message.headers or {})
    properties = json_values.storable(_own_properties(message))
    x_death = headers.get("x-death")
    body = message.body if isinstance(message.body, bytes) else str(message.body).encode()
    task, problem = "", ""
    attempts: list[AttemptKey] = []
    try:
        if broker != brokers.DEFAULT:
            raise ValueError(f"it lay in the broker {broker}")
        if brokers.UNDECODED in properties:
            raise ValueError(f"it cannot be decoded: {properties[brokers.UNDECODED]}")
        if "task" not in headers:
            raise ValueError("the message has no header task")
        task = str(headers["task"])
        _, kwargs, _ = json.loads(body)
        if task == messages.RUN:
            attempts = messages.dispatched(kwargs)
    except messages.UNREADABLE as error:
        problem = f"not a task message of ours: {_in_words(error)}"
    return Letter(
        raw_body=body,
        headers=headers,
        x_death=[d for d in x_death if isinstance(d, dict)] if isinstance(x_death, list) else [],
        task=task,
        attempts=attempts,
        problem=problem,
        properties=properties,
        broker=broker,
        is_redelivered=bool((message.delivery_info or {}).get("redelivered")),
    )


def _in_words(error: Exception) -> str:
    """The fault that keeps a message from being read."""
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
        return f"its body is not JSON: {error}"
    if isinstance(error, KeyError):
        return f"it has no argument {error.args[0]}"
    return str(error) or repr(error)


def _own_properties(message: Message) -> dict[str, Any]:
    return {
        name: value
        for name, value in (message.properties or {}).items()
        if name != "application_headers"
    }


def settle(letters: Sequence[Letter], *, now: datetime) -> Drained:
    """Settle these letters: first those that belong to an app, then all others in one transaction.

    One letter that the database cannot store must not stop the others: they are then settled one by
    one, and of the faulty one only the bytes are kept.
    """
    try:
        answered = _taken_by_apps(letters, now=now)
        ours = [letter for position, letter in enumerate(letters) if position not in answered]
        with transaction.atomic():
            database.hold_briefly()
            drained = _settle(ours, now=now) + Drained(answered=len(answered))
            _tally(letters, drained, now=now)
            return drained
    except DataError as error:
        if len(letters) > 1:
            return sum((settle([letter], now=now) for letter in letters), Drained())
        with transaction.atomic():
            _keep_bytes(letters[0], f"not storable: {error}", now=now)
            _tally(letters, drained := Drained(unreadable=1), now=now)
        return drained


def _taken_by_apps(letters: Sequence[Letter], *, now: datetime) -> set[int]:
    """The positions of letters that an app has taken, whatever they look like: headers of a foreign
    message may have the names of ours."""
    taken: set[int] = set()
    for take in frame.collect(lambda app: app.dead_letters):
        taken |= take(letters, now=now)
    return taken


def _tally(letters: Sequence[Letter], drained: Drained, *, now: datetime) -> None:
    """Count the letters, and how long they waited. Last in its transaction: others count the
    same."""
    outcomes = {name: number for name, number in asdict(drained).items() if number}
    metrics.DLQ_LETTERS.add(outcomes)
    waits = [now - died_at for letter in letters if (died_at := letter.died_at) is not None]
    metrics.DLQ_LETTER_SECONDS.observe(("", max(0.0, wait.total_seconds())) for wait in waits)


def _settle(letters: Sequence[Letter], *, now: datetime) -> Drained:
    waiting = {
        execution.key: execution
        for execution in Execution.objects.filter(
            pk__in={execution_id for letter in letters for execution_id, _ in letter.attempts},
            status=ExecutionStatus.SCHEDULED,
        )
        .prefetch_related("worker")  # one row of a worker for all of its executions
        .defer("result")
        .with_actions()
    }
    subjects = {each.id: each for each in executions.subjects(list(waiting.values()))}
    entries: list[DLQEntry] = []
    dead: dict[Reason, list[Execution]] = {}
    details: dict[UUID, str] = {}
    stale = unreadable = 0
    for letter in letters:
        if letter.problem or letter.task != messages.RUN:
            problem = letter.problem or f"a dead {letter.task} message: the sweep does its work"
            entries.append(_entry(letter, DLQEntry.Reason.MESSAGE_INVALID, problem, now=now))
            unreadable += 1
            continue
        reason, kept_as = REASONS.get(letter.died_of, REASONS["rejected"])
        for attempt in letter.attempts:
            execution = waiting.pop(attempt, None)
            if execution is None:
                stale += 1
                continue
            dead.setdefault(reason, []).append(execution)
            details[execution.pk] = explained = _explain(execution, reason)
            entries.append(_entry(letter, kept_as, explained, subjects[execution.pk], now=now))
    ended: set[UUID] = set()
    returned: set[UUID] = set()
    for reason, group in dead.items():
        why: Any = {"reason": reason, "detail": details, "failed_by": FAILED_BY, "now": now}
        if reason is Reason.QUEUE_TTL_EXPIRED:
            expired = executions.expire(group, **why)
            ended |= expired.ended
            returned |= expired.returned
        else:
            ended |= executions.end_attempts(group, **why)
    # an execution that lost its race meanwhile was claimed or ended: its letter was stale
    kept = [entry for entry in entries if entry.subject_id is None or entry.subject_id in ended]
    investigations.keep(kept)
    transaction.on_commit(partial(_log_settled, dead, ended, returned, unreadable))
    stale += len(entries) - len(kept) - len(returned)
    return Drained(len(kept) - unreadable, len(returned), stale, unreadable)


def _log_settled(
    dead: Mapping[Reason, list[Execution]],
    ended: Collection[UUID],
    returned: Collection[UUID],
    unreadable: int,
) -> None:
    """Log each letter whose execution moved, and how many could not be read."""
    for reason, group in dead.items():
        logged.log_each(
            "dead letter drained",
            [execution for execution in group if execution.pk in ended or execution.pk in returned],
            lambda execution, reason=reason: {  # type: ignore[misc]
                "reason": reason.value,
                "worker": execution.worker.name if execution.worker else "",
                "goes_back": execution.pk in returned,
            },
        )
    if unreadable:
        log.warning("unreadable dead letters kept", n=unreadable)


def _explain(execution: Execution, reason: Reason) -> str:
    worker = execution.worker_name or "its worker"
    if reason is Reason.QUEUE_TTL_EXPIRED:
        return (
            f"{worker} did not take the execution within {execution.dispatch_ttl_ms / 1000:g} s; "
            "it may be down or overloaded"
        )
    return f"the message for {worker} was rejected"


def _entry(
    letter: Letter,
    reason: DLQEntry.Reason,
    detail: str,
    subject: Subject | None = None,
    *,
    now: datetime,
) -> DLQEntry:
    death = letter.x_death[0] if letter.x_death else {}
    keys = death.get("routing-keys")
    about = investigations.of_subject(subject) if subject else {}
    return DLQEntry(
        **about,
        dlq_reason=reason,
        detail=detail,
        dlq_timestamp=now,
        opened_by=FAILED_BY,
        original_exchange=str(death.get("exchange", ""))[:255],
        original_queue=str(death.get("queue", ""))[:255],
        original_routing_key=str(keys[0])[:255] if isinstance(keys, list) and keys else "",
        x_death=letter.x_death,
        headers=letter.headers,
        raw_body=None if subject else letter.raw_body,
        fingerprint=letter.fingerprint
        if subject is None
        else messages.name_of((subject.id, subject.attempt or 0)),
    )


def _keep_bytes(letter: Letter, detail: str, *, now: datetime) -> None:
    entry = DLQEntry(
        dlq_reason=DLQEntry.Reason.MESSAGE_INVALID,
        detail=detail.replace("\x00", ""),
        dlq_timestamp=now,
        opened_by=FAILED_BY,
        raw_body=letter.raw_body,
        fingerprint=letter.fingerprint,
    )
    investigations.keep([entry])
