"""Old events leave: into a file first, and then out of the database. Only its owner may do that."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.db import connection, transaction

from orchestrator.access.audit import chain
from orchestrator.access.audit.chain import Head
from orchestrator.access.audit.models import AuditEvent, AuditSeal
from orchestrator.access.audit.recording import Actor, record
from orchestrator.core import finality
from orchestrator.core.errors import MusterError

Line = dict[str, Any]


class NothingToPrune(MusterError):
    """No sealed event is that old."""


class ChainIsBroken(MusterError):
    """The chain does not hold; events that may be evidence are not removed."""


def lines(since: datetime | None = None, until: datetime | None = None) -> Iterator[Line]:
    """Events in the order of the chain, each with its seal; then those that have none yet."""
    for seal, event in chain.sealed():
        if event is not None and _is_between(event, since, until):
            yield _line(event, seal)
    for event in chain.unsealed().iterator(chunk_size=chain.BATCH_SIZE):
        if _is_between(event, since, until):
            yield _line(event, None)


def lines_up_to(end: Head) -> Iterator[Line]:
    """The events at the beginning of the chain, up to this one."""
    for seal, event in chain.sealed():
        if seal.position > end.position:
            return
        if event is not None:
            yield _line(event, seal)


def _is_between(event: AuditEvent, since: datetime | None, until: datetime | None) -> bool:
    return (since is None or event.at >= since) and (until is None or event.at < until)


def _line(event: AuditEvent, seal: AuditSeal | None) -> Line:
    place = {
        "position": seal and seal.position,
        "previous": seal and seal.previous,
        "hash": seal and seal.hash,
    }
    return chain.content_of(event) | place


def end_before(before: datetime) -> Head:
    """The end of what may be removed: the last seal before the first event that is not older.

    Raises NothingToPrune, and ChainIsBroken.
    """
    if fault := chain.verify().fault:
        raise ChainIsBroken(f"The chain does not hold: {fault}. Nothing is removed")
    end: Head | None = None
    for seal, event in chain.sealed():
        if event is None or event.at >= before:
            break
        end = Head(seal.position, seal.hash)
    if end is None:
        raise NothingToPrune(f"No sealed event is older than {before:%Y-%m-%d %H:%M}")
    return end


def remove(end: Head, *, actor: Actor, now: datetime) -> None:
    """Remove the beginning of the chain. It begins after this end from then on, and an event in it
    says so.

    Only the owner of the tables may do this: their triggers are lifted for that transaction.
    """
    with transaction.atomic(), finality.lifted(connection, [AuditEvent, AuditSeal]):
        old = AuditSeal.objects.filter(position__lte=end.position)
        AuditEvent.objects.filter(pk__in=old.values("event_id"))._raw_delete(connection.alias)
        old._raw_delete(connection.alias)
        record(
            chain.PRUNED, actor=actor, object_kind="audit", object_id=end, reason="removed", now=now
        )
