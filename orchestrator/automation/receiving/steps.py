"""One delivery, step by step."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog
from django.db import Error as DatabaseError

from orchestrator.automation.hooks import parameters as hook_parameters
from orchestrator.automation.hooks import profiles
from orchestrator.automation.hooks.deliveries import (
    Delivery,
    Invalid,
    NoSecret,
    NotSigned,
    Outcome,
    Refused,
    Unreadable,
)
from orchestrator.automation.hooks.profiles import IDEMPOTENCY_KEY
from orchestrator.automation.hooks.schemes import Scheme, UnusableSecret
from orchestrator.automation.models import Webhook
from orchestrator.automation.receiving import contents, investigating, secrets
from orchestrator.automation.receiving.admission import Identify, is_for_tokens, known
from orchestrator.automation.receiving.counts import counts
from orchestrator.automation.receiving.limits import buckets
from orchestrator.automation.recording import (
    EventsRefused,
    NewEvent,
    Recorded,
    record_many,
    require_room,
)
from orchestrator.core import authority, packs
from orchestrator.core.errors import Conflict, MusterError, Unavailable

log = structlog.get_logger(__name__)

SOURCE = "hook"
LONGEST_KEY = 200


@dataclass(frozen=True)
class CameFrom:
    """The facts that are known of a sender without its body."""

    address: str
    identify: Identify


@dataclass(frozen=True)
class Received:
    """The event of a delivery, and whether this delivery made it; or an answer without an event."""

    event: Recorded | None = None
    answer: Mapping[str, Any] | None = None
    has_problem: bool = False


def receive(delivery: Delivery, *, path: str, came_from: CameFrom, now: datetime) -> Received:
    """Check a delivery, and record it as an event of the trigger at this path.

    In this order, in which nothing of the body is parsed before it is known whose it is:

    1. the path: an unknown one costs one look-up;
    2. the limit of the hook;
    3. the signature over the bytes as they came, and its time;
    4. the body as JSON or a form, and its schema;
    5. the event, committed when this returns.

    Raises Refused, TooManyEvents, and for the profile `token` what its callers are refused with.
    """
    hook = known(path, address=came_from.address, now=now)
    try:
        received = _received(hook, delivery, came_from, now)
    except MusterError as error:
        outcome = _outcome_of(error)
        counts.note(outcome, hook=hook.pk, detail=str(error), address=came_from.address, now=now)
        if isinstance(error, NoSecret):
            _investigate(hook, error, now)
        raise
    counts.note(_outcome_of_taken(received), hook=hook.pk, address=came_from.address, now=now)
    return received


def _received(hook: Webhook, delivery: Delivery, came_from: CameFrom, now: datetime) -> Received:
    parameters = hook.trigger.parameters
    at = time.monotonic()
    buckets.require_room(hook.pk, at=at)
    require_room()
    if is_for_tokens(hook):
        scheme = None
        principal = came_from.identify()
        authority.require(principal, "events.send", hook.place)
        sent_by = principal.actor
    else:
        scheme = profiles.of(parameters)
        assert scheme is not None  # all profiles but that for tokens have one
        verify(scheme, delivery, hook_parameters.references(parameters), now=now)
        sent_by = f"hook:{hook.path}"
    buckets.take(hook.pk, at=at)
    body = contents.parsed(delivery)
    if (answer := _answer(parameters, body)) is not None:
        return Received(answer=answer)
    event = NewEvent(
        trigger=hook.trigger,
        payload=contents.payload(delivery, body, hook_parameters.kept_headers(parameters)),
        key=_key(scheme, delivery, body),
        problem=_problem(parameters, body),
        source=SOURCE,
        sent_by=sent_by,
    )
    return Received(_recorded(event, now), has_problem=bool(event.problem))


def verify(scheme: Scheme, delivery: Delivery, references: Sequence[str], *, now: datetime) -> None:
    """Check the signature with the secrets as this process knows them, and if none of them fits,
    with those that there are now. Raises NotSigned, TooOld and NoSecret."""
    known = secrets.kept.of(references)
    try:
        try:
            scheme.verify(delivery, secrets.values(known), now=now)
        except NotSigned:
            changed = secrets.kept.changed_since(known, references)
            if changed is None:
                raise
            scheme.verify(delivery, secrets.values(changed), now=now)
    except UnusableSecret as error:
        raise NoSecret(f"The secret has the wrong form: {error}.") from None


def _key(scheme: Scheme | None, delivery: Delivery, body: Any) -> str | None:
    """The key that a repetition has in common with the first delivery; a token's caller may name
    one."""
    if scheme is not None:
        return scheme.key(delivery, body)
    key = delivery.header(IDEMPOTENCY_KEY)
    if len(key) > LONGEST_KEY or not key.isprintable():
        raise Unreadable(f"Expected at most {LONGEST_KEY} printable characters in Idempotency-Key")
    return key or None


def _answer(parameters: Mapping[str, Any], body: Any) -> Mapping[str, Any] | None:
    """The answer to what Slack asks before it sends anything: whether somebody here knows the
    secret. None if the body does not ask that."""
    is_question = isinstance(body, Mapping) and body.get("type") == "url_verification"
    if parameters["profile"] != "slack" or not is_question:
        return None
    return {"challenge": str(body.get("challenge", ""))}


def _problem(parameters: Mapping[str, Any], body: Any) -> str:
    """The places that do not fit the schema, if such events are kept. Raises Invalid if they are
    not."""
    found = packs.validate_value(parameters.get("schema", {}), body)
    problems = [(f"/body{each.pointer}", each.message) for each in found]
    if not problems:
        return ""
    if not parameters.get("keep_invalid"):
        raise Invalid(problems)
    return "; ".join(f"{where}: {what}" for where, what in problems)


def _recorded(event: NewEvent, now: datetime) -> Recorded:
    try:
        (recorded,) = record_many([event], now=now, by_muster=True)
    except EventsRefused as refused:
        raise Invalid([(each.pointer, each.message) for each in refused.refusals]) from None
    return recorded


def _investigate(hook: Webhook, error: NoSecret, now: datetime) -> None:
    try:
        investigating.open_for(hook, str(error), now=now)
    except DatabaseError as fault:  # the sender is answered 503 all the same, and comes again
        log.error("no investigation of a hook without a secret", hook=hook.path, error=repr(fault))


def _outcome_of(error: MusterError) -> Outcome:
    if isinstance(error, Refused):
        return error.outcome
    return Outcome.BUSY if isinstance(error, Unavailable | Conflict) else Outcome.NOT_PERMITTED


def _outcome_of_taken(received: Received) -> Outcome:
    if received.event is None:
        return Outcome.ANSWERED
    if not received.event.is_new:
        return Outcome.DUPLICATE
    return Outcome.KEPT_INVALID if received.has_problem else Outcome.ACCEPTED
