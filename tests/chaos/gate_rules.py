"""What gates promise, judged from outside: what a client sent and got, and rows that SQL reads.

Every confirmed message comes to one end, a terminal execution or a refusal, and to an answer.
Answers come at least once, and copies of one have one `message_id`.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tests.chaos.facts import TERMINAL, Violation

SUCCESS, FAILURE, EXCEPTION, INVALID_TASK = (
    "RESULT_SUCCESS", "RESULT_FAILURE", "RESULT_EXCEPTION", "INVALID_TASK",
)  # fmt: skip
INVALID, EXCEEDED = "TASKMESSAGE_INVALID", "RETRIES_EXCEEDED"
LOST = frozenset({"worker_lost", "process_lost", "worker_stopped"})
"""Reasons of an attempt that began, and whose end nobody saw."""


class Kind(enum.StrEnum):
    """What a message is, by what has to become of it."""

    AGAIN = "again"
    ONCE = "once"
    DEFERS = "defers"
    FAILS = "fails"
    POISON = "poison"
    """Kills whoever runs it."""
    UNKNOWN = "unknown"
    """Names what no action does."""
    GARBAGE = "garbage"
    OLD = "old"
    """Was rejected before: it is only kept."""


REFUSED = frozenset({Kind.UNKNOWN, Kind.GARBAGE})


@dataclass
class Sent:
    """A line of the client's ledger: one task, however often its message was published."""

    task_id: str
    gate: str
    kind: Kind
    tries: int = 0
    """Publishes, those too of which the client never heard whether the broker took them."""
    confirmed: int = 0


@dataclass(frozen=True)
class Letter:
    """A message that the client got."""

    task_id: str
    gate: str
    status: str = ""
    """Of an answer."""
    message_id: str = ""
    rejected: str = ""
    """Of a copy in the rejected queue: why."""
    execution: str = ""
    data: Any = None


@dataclass(frozen=True)
class Ticket:
    """The row of one message."""

    id: int
    task_id: str
    gate: str
    execution: str | None = None
    refusal: str = ""
    """Why it was rejected."""
    is_told: bool = True
    is_moved: bool = False
    """Its task went on through the retry queue."""
    status: str = ""
    """Of the execution; so are the next ones."""
    reason: str = ""
    result: Any = None
    lost: int = 0
    """Attempts of it whose end nobody saw."""
    starts: int = 0
    """How often its action said that it began."""


@dataclass(frozen=True)
class Gate:
    """What the rules need to know of a gate."""

    limit: int
    counts_redelivered: bool = False
    queues: Sequence[str] = ()
    """Those that the gate reads."""


LOST_WITH_A_QUEUE = 3
"""Answers that are on their way to a queue in the moment in which it is deleted, at most."""


@dataclass(frozen=True)
class Ledger:
    """All that is known of a run."""

    gates: Mapping[str, Gate]
    sent: Sequence[Sent] = ()
    answers: Sequence[Letter] = ()
    copies: Sequence[Letter] = ()
    """In the rejected queues."""
    tickets: Sequence[Ticket] = ()
    left: Mapping[str, int] = field(default_factory=dict)
    """Messages in each queue at the end."""
    deletions: Mapping[str, int] = field(default_factory=dict)
    """How often the client has deleted its output queue, by gate."""

    @cached_property
    def answers_of(self) -> Mapping[str, list[Letter]]:
        return _by_task(self.answers)

    @cached_property
    def copies_of(self) -> Mapping[str, list[Letter]]:
        return _by_task(self.copies)

    @cached_property
    def tickets_of(self) -> Mapping[str, list[Ticket]]:
        return _by_task(self.tickets)


def check(ledger: Ledger) -> list[Violation]:
    return [violation for rule in RULES for violation in rule(ledger)]


# --- the rules ------------------------------------------------------------------------------------


def messages_end_once(ledger: Ledger) -> Iterator[Violation]:
    """A confirmed message has one terminal execution, or is refused: once for each time that it was
    sent, at most. What went on through a retry queue was lost before."""
    for sent in ledger.sent:
        tickets = ledger.tickets_of[sent.task_id]
        last = [ticket for ticket in tickets if ticket.execution and not ticket.is_moved]
        refused = [ticket for ticket in tickets if not ticket.execution]
        rule = _Telling("messages_end_once", sent)
        if sent.kind is Kind.OLD:
            if tickets:
                yield rule.violated("was rejected before, and taken in")
            continue
        if sent.confirmed and not last and not refused:
            yield rule.violated("confirmed, and there is neither an execution nor a refusal")
        if len(last) > 1:
            yield rule.violated(f"has {len(last)} executions")
        if last and refused:
            yield rule.violated("has an execution, and is refused")
        if sent.kind in REFUSED and last:
            yield rule.violated("invalid, and has an execution")
        if len(refused) > sent.tries:
            yield rule.violated(f"sent {sent.tries} times, and refused {len(refused)} times")
        if sent.kind not in REFUSED and any(t.refusal == INVALID for t in refused):
            yield rule.violated("valid, and refused as invalid")
        if refused and sent.kind not in REFUSED and not ledger.gates[sent.gate].counts_redelivered:
            yield rule.violated("refused, and its gate counts no redelivery")
        for ticket in tickets:
            if ticket.execution and ticket.status not in TERMINAL:
                yield rule.violated(f"its execution is {ticket.status}")
            if ticket.execution and ticket.is_moved and ticket.reason not in LOST:
                yield rule.violated(f"went back to the retry queue for {ticket.reason}")
            if not ticket.is_told:
                yield rule.violated(f"ticket {ticket.id} was never answered")


def messages_are_answered(ledger: Ledger) -> Iterator[Violation]:
    """At least one answer for a confirmed message, and it says what the row says.

    RabbitMQ confirms what it had routed to a queue when that is deleted, also where the queue was
    deleted only if it was empty: some answers may be lost with it, by their own client.
    """
    may_be_lost = {gate: LOST_WITH_A_QUEUE * times for gate, times in ledger.deletions.items()}
    for sent in ledger.sent:
        answers = ledger.answers_of[sent.task_id]
        rule = _Telling("messages_are_answered", sent)
        if sent.kind is Kind.OLD:
            if answers:
                yield rule.violated("was rejected before, and is answered")
            continue
        if sent.confirmed and not answers:
            if ledger.tickets_of[sent.task_id] and may_be_lost.get(sent.gate, 0):
                may_be_lost[sent.gate] -= 1
            else:
                yield rule.violated("confirmed, and never answered")
        expected = _expected(ledger.tickets_of[sent.task_id])
        for answer in answers:
            wanted = expected.get(answer.message_id)
            if answer.gate != sent.gate:
                yield rule.violated(f"answered by {answer.gate}")
            elif wanted is not None and answer.status != wanted[0]:
                yield rule.violated(f"answered {answer.status}, and its row says {wanted[0]}")
            elif wanted is not None and answer.status == SUCCESS and answer.data != wanted[1]:
                yield rule.violated(
                    f"answered {answer.data!r:.100}, and its row has another result"
                )


def answers_have_one_id(ledger: Ledger) -> Iterator[Violation]:
    """Copies of an answer can be told: all of one ticket have the same `message_id`, which is that
    of no other."""
    for sent in ledger.sent:
        expected = _expected(ledger.tickets_of[sent.task_id])
        found = {answer.message_id for answer in ledger.answers_of[sent.task_id]}
        rule = _Telling("answers_have_one_id", sent)
        for message_id in sorted(found - expected.keys()):
            yield rule.violated(f"answered with the id {message_id!r}, of nothing that it became")
        if sent.kind not in REFUSED and len(found) > 1:
            yield rule.violated(f"answered with {len(found)} ids")


def starts_have_a_limit(ledger: Ledger) -> Iterator[Violation]:
    """No task begins more often than limit + 1 times and its deferrals; what kills whoever runs it
    is lost exactly so often, and a copy of it is rejected.

    A lost attempt may have been lost by somebody else before the action could say anything; where
    redeliveries count, these take from the limit, too.
    """
    for sent in ledger.sent:
        gate = ledger.gates[sent.gate]
        tickets = [ticket for ticket in ledger.tickets_of[sent.task_id] if ticket.execution]
        lost = sum(ticket.lost for ticket in tickets)
        starts = sum(ticket.starts for ticket in tickets)
        rule = _Telling("starts_have_a_limit", sent)
        if max(starts, lost) > gate.limit + 1:
            yield rule.violated(f"began {starts} times, lost {lost}, and the limit is {gate.limit}")
        if sent.kind is not Kind.POISON or not sent.confirmed:
            continue
        if lost != gate.limit + 1 and not gate.counts_redelivered:
            yield rule.violated(f"lost {lost} attempts, and the limit is {gate.limit}")
        if any(ticket.status == "completed" for ticket in tickets):
            yield rule.violated("killed whoever ran it, and completed")


def rejected_copies_fit(ledger: Ledger) -> Iterator[Violation]:
    """A copy in the rejected queue for each refused or poisoned task, none for any other, and all
    of them of one end."""
    for sent in ledger.sent:
        copies = ledger.copies_of[sent.task_id]
        tickets = ledger.tickets_of[sent.task_id]
        wanted = {ticket.refusal for ticket in tickets if ticket.refusal}
        wanted |= {EXCEEDED for t in tickets if t.execution and not t.is_moved and t.reason in LOST}
        if sent.kind is Kind.OLD:
            wanted = {INVALID}
        found = {copy.rejected for copy in copies}
        rule = _Telling("rejected_copies_fit", sent)
        for why in sorted(wanted - found):
            if sent.confirmed:
                yield rule.violated(f"no copy says {why}")
        for why in sorted(found - wanted):
            yield rule.violated(f"a copy says {why or 'nothing'}")
        if len({copy.execution for copy in copies}) > 1:
            yield rule.violated("its copies name several executions")


def nothing_is_left(ledger: Ledger) -> Iterator[Violation]:
    """Input and retry queues are empty at the end."""
    for gate in ledger.gates.values():
        for queue in gate.queues:
            if ledger.left.get(queue) != 0:
                left = ledger.left.get(queue, "nobody knows how many")
                yield Violation("nothing_is_left", f"{left} messages in {queue}")


def nothing_is_invented(ledger: Ledger) -> Iterator[Violation]:
    """No ticket, no answer and no copy of what nobody sent."""
    known = {sent.task_id for sent in ledger.sent}
    for what, found in (
        ("ticket", ledger.tickets_of),
        ("answer", ledger.answers_of),
        ("rejected copy", ledger.copies_of),
    ):
        for task_id in sorted(found.keys() - known):
            yield Violation("nothing_is_invented", f"a {what} of {task_id!r}, which nobody sent")


RULES = (
    messages_end_once,
    messages_are_answered,
    answers_have_one_id,
    starts_have_a_limit,
    rejected_copies_fit,
    nothing_is_left,
    nothing_is_invented,
)


# --- for the rules --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Telling:
    rule: str
    sent: Sent

    def violated(self, what: str) -> Violation:
        sent = self.sent
        about = f"{sent.kind} {sent.task_id} to {sent.gate}, sent {sent.tries} times"
        return Violation(self.rule, f"{about}: {what}")


def _expected(tickets: Sequence[Ticket]) -> dict[str, tuple[str, Any]]:
    """The status and the result of each answer that may come, by its `message_id`."""
    answers: dict[str, tuple[str, Any]] = {}
    for ticket in tickets:
        if ticket.execution is None:
            status = EXCEPTION if ticket.refusal == EXCEEDED else INVALID_TASK
            answers[f"ticket-{ticket.id}.answer"] = status, None
        elif not ticket.is_moved:
            answers[f"{ticket.execution}.answer"] = _status(ticket), ticket.result
    return answers


def _status(ticket: Ticket) -> str:
    if ticket.status == "completed":
        return SUCCESS
    own_word = ticket.status == "failed" and ticket.reason == "action_failed"
    return FAILURE if own_word or ticket.status == "cancelled" else EXCEPTION


def _by_task(things: Sequence[Any]) -> Mapping[str, list[Any]]:
    groups: dict[str, list[Any]] = defaultdict(list)
    for thing in things:
        groups[thing.task_id].append(thing)
    return groups
