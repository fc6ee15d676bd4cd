"""The chain over the events: sealed by a maintenance function, verified by a command.

A hash that each writer had to add would make all of them wait for each other, until the slowest has
committed. So they only insert, and every few seconds one process seals, in order, what has been
committed since. What is younger than that is not protected by the chain yet.

Whoever owns the tables can still write a chain of their own, from the row that they change on. That
shows by the hashes that were noted elsewhere before: each sealing logs its last one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import structlog
from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef

from orchestrator.access.audit.models import AuditEvent, AuditEventQuerySet, AuditSeal

log = structlog.get_logger(__name__)

GENESIS = "0" * 64
"""The text that the first seal has in place of a hash before it."""

LATE = 10_000
"""An event may be committed after this many others that were numbered later."""

BATCH_SIZE = 1_000

PRUNED = "audit.pruned"
"""In place of a permission, in the event that says up to which seal the chain was removed."""

COVERED = [field.attname for field in AuditEvent._meta.concrete_fields]


@dataclass(frozen=True)
class Head:
    """The end of the chain."""

    position: int = 0
    hash: str = GENESIS

    def __str__(self) -> str:
        return f"{self.position}:{self.hash}"


@dataclass(frozen=True)
class Verification:
    """The result of `verify`."""

    head: Head
    verified: int
    """The number of events that are as they were sealed."""
    unsealed: int
    """The number of events that are not sealed yet."""
    fault: str = ""
    """The first row that is not as it was sealed; empty if there is none."""


def content_of(event: AuditEvent) -> dict[str, Any]:
    """All columns of an event, for its hash and for its export."""
    values = {name: getattr(event, name) for name in COVERED}
    return values | {"at": event.at.astimezone(UTC).isoformat(timespec="microseconds")}


def hash_of(event: AuditEvent, *, position: int, previous: str) -> str:
    """The hash of one event at its place in the chain."""
    content = json.dumps(
        [position, previous, content_of(event)],
        ensure_ascii=False,
        sort_keys=True,
        separators=(",", ":"),
    )
    return hashlib.sha256(content.encode()).hexdigest()


def head() -> Head:
    """The last seal."""
    last = AuditSeal.objects.order_by("position").last()
    return Head() if last is None else Head(last.position, last.hash)


# --- sealing -------------------------------------------------------------------------------------


def seal(*, now: datetime) -> int:
    """Seal what was committed since; returns how many. Safe to run twice at once: positions are
    unique, and who comes second seals nothing."""
    total = 0
    try:
        while batch := list(recent_unsealed()[:BATCH_SIZE]):
            with transaction.atomic():
                AuditSeal.objects.bulk_create(_links(batch, head()))
            total += len(batch)
    except IntegrityError:
        log.debug("somebody else seals the audit")
    if total:
        # outside of the database, where nobody who changes it can change this
        log.info("audit sealed", events=total, head=str(head()))
    return total


def recent_unsealed() -> AuditEventQuerySet:
    """Events without a seal, the oldest first, among the last ones: all others have one."""
    newest = AuditSeal.objects.order_by("position").last()
    since = 0
    if newest is not None:
        margin = AuditSeal.objects.filter(position__lte=newest.position - LATE)
        oldest = margin.order_by("position").last()
        since = 0 if oldest is None else oldest.event_id
    return unsealed(since)


def unsealed(since: int = 0) -> AuditEventQuerySet:
    """Events without a seal, the oldest first, of those with a greater id."""
    # the second condition keeps the planner from reading all seals
    mine = AuditSeal.objects.filter(event_id=OuterRef("pk"), event_id__gt=since)
    return AuditEvent.objects.filter(~Exists(mine), pk__gt=since).order_by("pk")


def _links(events: Iterable[AuditEvent], last: Head) -> Iterator[AuditSeal]:
    position, previous = last.position, last.hash
    for event in events:
        position += 1
        hash = hash_of(event, position=position, previous=previous)
        yield AuditSeal(position=position, event_id=event.pk, previous=previous, hash=hash)
        previous = hash


# --- verifying -----------------------------------------------------------------------------------


def verify(*, expected: Sequence[Head] = ()) -> Verification:
    """Compare every event with its seal, and every seal with the one before it.

    `expected`: ends of the chain that somebody noted before, which must still be in it.
    """
    last, verified = _beginning(), 0
    noted = {each.position: each.hash for each in expected}
    fault = ""
    for seal_, event in sealed():
        fault = _fault(seal_, event, last, noted.pop(seal_.position, None))
        if fault:
            break
        last, verified = Head(seal_.position, seal_.hash), verified + 1
    if not fault and (beyond := sorted(noted.keys() - range(_beginning().position + 1))):
        fault = f"the seals from {last.position + 1} to {beyond[-1]} are missing"
    unsealed = AuditEvent.objects.count() - AuditSeal.objects.count()
    return Verification(last, verified, max(0, unsealed), fault)


def sealed() -> Iterator[tuple[AuditSeal, AuditEvent | None]]:
    """Every seal in order, with its event."""
    position = -1
    while True:
        after = AuditSeal.objects.filter(position__gt=position).order_by("position")
        batch = list(after[:BATCH_SIZE])
        if not batch:
            return
        events = AuditEvent.objects.in_bulk([each.event_id for each in batch])
        for each in batch:
            yield each, events.get(each.event_id)
        position = batch[-1].position


def _beginning() -> Head:
    """The end of what was pruned: an event that is itself in the chain says so."""
    pruned = AuditEvent.objects.filter(permission=PRUNED).order_by("-pk").first()
    if pruned is None:
        return Head()
    position, _, hash = pruned.object_id.partition(":")
    return Head(int(position), hash) if position.isdecimal() else Head()


def _fault(seal_: AuditSeal, event: AuditEvent | None, last: Head, noted: str | None) -> str:
    """The fault of a seal and its event; empty if there is none."""
    if seal_.position != last.position + 1:
        return f"the seals from {last.position + 1} to {seal_.position - 1} are missing"
    if event is None:
        return f"event {seal_.event_id}, sealed at {seal_.position}, was removed"
    described = (
        f"event {event.pk}, sealed at {seal_.position} ({event}, {event.at:%Y-%m-%d %H:%M:%S})"
    )
    if seal_.previous != last.hash:
        return f"{described}: its seal does not follow the one before it"
    if seal_.hash != hash_of(event, position=seal_.position, previous=seal_.previous):
        return f"{described} was edited"
    if noted is not None and noted != seal_.hash:
        return f"{described}: the chain was written again up to here, its hash is not the one noted"
    return ""
