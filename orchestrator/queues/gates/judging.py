"""The verdict on one delivery of a gate's input or retry queue. The first rule that fits decides.

Nothing here reads or writes: the caller looks up tickets and actions before, and acts after.
"""

from __future__ import annotations

import enum
import fnmatch
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from orchestrator.core.redaction import quoted
from orchestrator.queues.gates import headers as names
from orchestrator.queues.gates.problems import Problem
from orchestrator.queues.gates.shape import Reading, TaskMessage
from orchestrator.queues.models.gates import QUEUE_NAME_MAX

QUORUM = "quorum"
"""The type of queue that counts deliveries itself."""

DIED_OF = {
    "expired": "it waited for longer than its time to live",
    "maxlen": "its queue was full",
    "delivery_limit": "it was delivered as often as its queue allows, and never finished",
    "rejected": "a consumer rejected it",
}
"""The causes that `x-death` gives for a dead letter (https://www.rabbitmq.com/docs/dlx), in
words."""


class Does(enum.Enum):
    """The step that a keeper takes with a delivery. What it replaces is acknowledged after the
    broker or the database has confirmed it, never before."""

    KEEP_REJECTED = "keep_rejected"
    """It has been rejected before: a copy goes to the rejected queue, and nobody is answered."""
    REFUSE = "refuse"
    """A ticket without an execution, and an answer that says why."""
    ANSWER_AGAIN = "answer_again"
    """The answer is known and was sent: it is sent again."""
    ATTACH = "attach"
    """Its execution is open: this keeper holds the delivery until that is over."""
    FORWARD = "forward"
    """It is addressed to another queue."""
    RETRY = "retry"
    """Somebody may have died of it: a copy goes to the retry queue, with the start counted."""
    TAKE_IN = "take_in"
    """A ticket, and an execution."""


@dataclass(frozen=True)
class Verdict:
    does: Does
    problems: tuple[Problem, ...] = ()
    rejected: str = ""
    """Of a refusal: INVALID or EXCEEDED; empty for a message that died in its queue otherwise."""
    tries: int = 0
    """Starts that were lost before."""
    to: str = ""
    """The queue that it is forwarded to."""
    action_ref: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)


class GateTerms(Protocol):
    """The terms of a gate for the messages that it takes."""

    input_queue: str
    retry_queue: str
    rejected_queue: str
    queue_type: str
    count_redelivered: bool
    divert: str
    forward_to: Collection[str]
    trusted_users: Collection[str]


class Known(Protocol):
    """The ticket of an earlier copy of a message."""

    told_at: Any


@dataclass(frozen=True)
class Delivery:
    """A message as the broker delivered it."""

    body: bytes
    headers: Mapping[str, Any]
    properties: Mapping[str, Any]
    redelivered: bool
    reading: Reading
    died_of: str = ""
    """The reason why the broker dropped it from the gate's queue, as `x-death` says; empty if it
    did not."""

    def lost_starts(self, queue_type: str) -> int:
        """Starts that were lost before this delivery: those that are counted in its header, and
        those of this stay in its queue.

        A classic queue only says that there was one. A quorum queue counts, so that three workers
        which died of it, and could not count themselves, are three starts on either kind. A classic
        queue passes on the count that a publisher wrote: it is not believed.
        """
        if not self.redelivered:
            return self.reading.tries
        counted = names.delivered_before(self.headers) if queue_type == QUORUM else 0
        return self.reading.tries + max(1, counted)


Fits = Callable[[TaskMessage], tuple[str, Mapping[str, Any], Iterable[Problem]]]
"""Returns the action of a message, its parameters, and what does not fit."""


def judge(
    delivery: Delivery, *, gate: GateTerms, retry_limit: int, known: Known | None, fits: Fits
) -> Verdict:
    """Decide what becomes of a delivery; the numbers are those of the table in docs/gates.md.

    `known`: the ticket of an earlier copy, which was not moved to another queue. `fits` is asked
    only about messages that would be taken in.
    """
    reading, message = delivery.reading, delivery.reading.message
    # 1. rejected before, by us or by another: taking it in would be a loop
    if names.REJECTED in delivery.headers:
        return Verdict(Does.KEEP_REJECTED)
    # 2. unreadable, or from somebody who is not trusted
    problems = [*reading.problems, *_stranger(delivery.properties, gate)]
    if message is None or problems:
        return _invalid(problems, reading.tries)
    # 3. and 4. a copy of what is known starts nothing, and a dead one is not answered once more
    if known is not None:
        is_open = known.told_at is None or delivery.died_of
        return Verdict(Does.ATTACH if is_open else Does.ANSWER_AGAIN)
    if delivery.died_of:
        return _dead(delivery)
    # 5. addressed to another queue
    if not _is_ours(message, gate) and gate.divert != "run":
        return _diverted(message, gate, reading.tries)
    # 6. delivered before, and nobody wrote a row: it may have killed who took it
    tries = reading.tries
    if delivery.redelivered and gate.count_redelivered:
        tries = delivery.lost_starts(gate.queue_type)
        if tries <= retry_limit:
            return Verdict(Does.RETRY, tries=tries)
    if tries > retry_limit:
        text = f"{tries} starts were lost, and the limit is {retry_limit} retries"
        return Verdict(Does.REFUSE, (Problem("", text),), names.EXCEEDED, tries)
    # 7. no action takes it
    action_ref, parameters, unfit = fits(message)
    if faults := tuple(unfit):
        return _invalid(faults, tries)
    # 9. (8. is the keeper's: it consumes nothing while the queue does not accept)
    return Verdict(Does.TAKE_IN, tries=tries, action_ref=action_ref, parameters=parameters)


def _invalid(problems: Iterable[Problem], tries: int) -> Verdict:
    return Verdict(Does.REFUSE, tuple(problems), names.INVALID, tries)


def _dead(delivery: Delivery) -> Verdict:
    """Nothing is wrong with a message that died in its queue, so that it is not INVALID."""
    why = DIED_OF.get(delivery.died_of, delivery.died_of)
    rejected = names.EXCEEDED if delivery.died_of == "delivery_limit" else ""
    problem = Problem("", f"the message died in its queue: {why}")
    return Verdict(Does.REFUSE, (problem,), rejected, delivery.reading.tries)


def _stranger(properties: Mapping[str, Any], gate: GateTerms) -> Iterable[Problem]:
    """RabbitMQ checks that `user_id` is the user of the connection that published."""
    if not gate.trusted_users:
        return
    user = properties.get("user_id")
    if user not in gate.trusted_users:
        found = "it is missing" if user is None else f"{quoted(user)} is not trusted"
        yield Problem(
            "property user_id", f"this gate takes messages of trusted users only: {found}"
        )


def _is_ours(message: TaskMessage, gate: GateTerms) -> bool:
    """Without `to`, it is meant for whoever takes it. The case is not looked at, as in CAF."""
    if message.to is None:
        return True
    return message.to.casefold() in (gate.input_queue.casefold(), gate.retry_queue.casefold())


def _diverted(message: TaskMessage, gate: GateTerms, tries: int) -> Verdict:
    to = message.to or ""
    if gate.divert == "forward" and is_allowed(to, gate.forward_to):
        return Verdict(Does.FORWARD, to=to)
    why = "this gate forwards to no other queue"
    if gate.divert == "forward":
        why = f"this gate forwards only to {', '.join(gate.forward_to) or 'no queue'}"
    return _invalid([Problem("/to", f"{quoted(to)} is another queue, and {why}")], tries)


def is_allowed(queue: str, patterns: Iterable[str]) -> bool:
    """Return True if a pattern, such as `orders.*`, fits this queue's name. No pattern fits an
    empty name, a name of the broker itself, or one that is too long for AMQP."""
    if not queue or queue.startswith("amq.") or len(queue.encode()) > QUEUE_NAME_MAX:
        return False
    return any(fnmatch.fnmatchcase(queue, pattern) for pattern in patterns)
