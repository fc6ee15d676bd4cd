"""Asking: a question becomes a row, once for each purpose of an execution."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from orchestrator.core import frame
from orchestrator.core.authority import Asker, Principal
from orchestrator.core.errors import Conflict, MusterError
from orchestrator.core.models import Execution
from orchestrator.inquiries.models import Inquiry
from orchestrator.inquiries.models.inquiries import PURPOSE_MAX, tree_of
from orchestrator.inquiries.questions import Question

OWN_PURPOSE = ""
"""That of the question that an execution of `core.ask` is about."""

BEFORE_DEADLINE = timedelta(seconds=10)
"""An inquiry ends so long before the deadline of the execution that it holds up, at the latest:
there is time to expire it."""


class PurposeTaken(Conflict):
    """The execution has asked something else for this purpose."""

    kind = "purpose-taken"


class KeyTaken(Conflict):
    """The caller has asked something else with this idempotency key."""

    kind = "idempotency-conflict"


class TooLate(MusterError):
    """The execution's deadline leaves no time for an answer."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The asker of an inquiry, and the place in which they ask."""

    by: Asker
    pack: str
    execution_id: UUID | None = None
    key: str | None = None
    """The caller's idempotency key."""
    purpose: str = OWN_PURPOSE
    tree: str = ""
    until: datetime | None = None
    """The latest time for an answer; the question's own if that is sooner."""


def by_execution(execution: Execution, *, purpose: str, holds_it: bool = False) -> Asked:
    """An execution asks. `holds_it`: the answer has to come before its deadline."""
    return Asked(
        by=asker_of(execution),
        pack=execution.place.name,
        execution_id=execution.pk,
        purpose=purpose,
        tree=tree_of(execution),
        until=execution.deadline_at - BEFORE_DEADLINE if holds_it else None,
    )


def by_caller(principal: Principal, *, pack: str, purpose: str, key: str | None = None) -> Asked:
    """A person or a service asks; with the same `key` once."""
    asker = Asker(principal.actor, principal.key_owner)
    return Asked(by=asker, pack=pack, purpose=purpose, key=key)


def asker_of(execution: Execution) -> Asker:
    """Whoever is behind an execution: an app may have requested it for somebody."""
    for askers in frame.collect(lambda app: app.execution_askers):
        known: Asker | None = askers([execution.pk]).get(execution.pk)
        if known is not None:
            return known
    return Asker(execution.requested_by, execution.key_owner or 0)


def ask(question: Question, *, asked: Asked, now: datetime) -> Inquiry:
    """Ask, and return the row; that of before if this execution has asked it already, or the caller
    with the same key.

    Raises PurposeTaken or KeyTaken if that asked something else, and TooLate.
    """
    expires_at = now + timedelta(seconds=question.ttl_seconds)
    if asked.until is not None:
        expires_at = min(expires_at, asked.until)
    row = Inquiry(
        asked_by_execution_id=asked.execution_id,
        purpose=asked.purpose[:PURPOSE_MAX],
        pack=asked.pack,
        asked_by=asked.by.name,
        asker_number=asked.by.key_owner,
        idempotency_key=asked.key,
        tree=asked.tree,
        prompt=question.prompt,
        schema=dict(question.schema),
        assignees=list(question.assignees),
        allow_requester=question.allow_requester,
        on_timeout=question.on_timeout,
        default=question.default,
        created_at=now,
        expires_at=expires_at,
    )
    if expires_at <= now:
        raise TooLate
    with transaction.atomic():
        # one that is there is skipped and then looked up: no window between the two
        is_once = asked.execution_id is not None or asked.key is not None
        Inquiry.objects.bulk_create([row], ignore_conflicts=is_once)
        if not is_once:
            return row
        holder = _holder(row)
    if holder.pk != row.pk and not _asks_the_same(row, holder):
        if asked.execution_id is None:
            raise KeyTaken(
                f"The idempotency key {asked.key!r} belongs to inquiry {holder.pk}, which asks "
                "something else"
            )
        raise PurposeTaken(
            f"Execution {asked.execution_id} has asked something else for {row.purpose!r}: "
            f"inquiry {holder.pk}"
        )
    return holder


def _holder(row: Inquiry) -> Inquiry:
    """The row itself, or the one that was there before it."""
    if row.asked_by_execution_id is None:
        key = {"asker_number": row.asker_number, "idempotency_key": row.idempotency_key}
        return Inquiry.objects.get(**key)
    return Inquiry.objects.get(asked_by_execution=row.asked_by_execution_id, purpose=row.purpose)


def _asks_the_same(row: Inquiry, holder: Inquiry) -> bool:
    names = ("pack", "prompt", "schema", "assignees", "on_timeout", "default", "allow_requester")
    return all(getattr(row, name) == getattr(holder, name) for name in names)
