"""Accepting executions: all that can be refused is refused here, before there is a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction

from orchestrator import packs, publisher
from orchestrator.errors import MusterError
from orchestrator.models import Action, Execution, Worker


@dataclass(frozen=True, kw_only=True)
class NewExecution:
    """What a caller asks for. Times as their names say; None means the action's own."""

    action_ref: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    worker_id: int | None = None
    priority: int = 0
    timeout_seconds: float | None = None
    queue_ttl_ms: int | None = None
    deadline_seconds: float | None = None
    idempotency_key: str | None = None
    correlation_id: str | None = None


@dataclass(frozen=True)
class Refusal:
    """One thing that was wrong with a request: which of many, where in it, and what."""

    index: int
    pointer: str
    """JSON pointer into that request, such as `/parameters/seconds`."""
    message: str


class RequestRefused(MusterError):
    """The request was refused and left no row."""

    def __init__(self, refusals: Sequence[Refusal]) -> None:
        told = [f"{r.pointer}: {r.message}" for r in refusals[:3]]
        if len(refusals) > len(told):
            told.append(f"and {len(refusals) - len(told)} more")
        super().__init__("; ".join(told))
        self.refusals = list(refusals)


class IdempotencyConflict(MusterError):
    """This idempotency key was used before, for another action or other parameters."""


class UnknownExecution(MusterError):
    """No execution has this id."""


def request(new: NewExecution, *, requested_by: str, now: datetime) -> Execution:
    """Accept one execution; see `request_many`."""
    return request_many([new], requested_by=requested_by, now=now)[0]


def request_many(
    news: Sequence[NewExecution], *, requested_by: str, now: datetime
) -> list[Execution]:
    """Accept executions: all of them, or none; returns their rows in the order of `news`.

    A repeated idempotency key returns the row that it made the first time.
    Raises RequestRefused with everything that was wrong, and IdempotencyConflict.
    The message goes out after the commit and in the background: accepting needs no broker.
    """
    actions = Action.objects.in_bulk({new.action_ref for new in news}, field_name="ref")
    pinned = {new.worker_id for new in news if new.worker_id is not None}
    workers = Worker.objects.in_bulk(pinned) if pinned else {}
    refusals = [
        Refusal(index, pointer, message)
        for index, new in enumerate(news)
        for pointer, message in _problems(new, actions.get(new.action_ref), workers)
    ]
    if refusals:
        raise RequestRefused(refusals)

    rows = [_row(new, actions[new.action_ref], requested_by=requested_by, now=now) for new in news]
    keyed = {row.idempotency_key: row for row in rows if row.idempotency_key is not None}
    with transaction.atomic():
        # a key that is taken is skipped here and looked up below: no window between the two
        Execution.objects.bulk_create(rows, ignore_conflicts=bool(keyed))
        taken = _taken_before(keyed) if keyed else {}
        fresh: dict[UUID, Execution] = {}
        for row in rows:
            if row.idempotency_key is None or taken[row.idempotency_key].pk == row.pk:
                fresh[row.pk] = row
        transaction.on_commit(lambda: publisher.send_soon(publisher.requested(list(fresh))))
    return [fresh.get(row.pk) or taken[str(row.idempotency_key)] for row in rows]


def _problems(
    new: NewExecution, action: Action | None, workers: Mapping[int, Worker]
) -> Iterable[tuple[str, str]]:
    if action is None:
        yield "/action_ref", f"no action is called {new.action_ref!r}"
    elif not action.enabled:
        yield "/action_ref", f"the action {new.action_ref} is disabled"
    else:
        for problem in packs.validate_parameters(action, dict(new.parameters)):
            yield f"/parameters{problem.pointer}", problem.message
    if new.worker_id is not None and new.worker_id not in workers:
        yield "/worker_id", f"no worker has the id {new.worker_id}"
    for name in ("timeout_seconds", "queue_ttl_ms", "deadline_seconds"):
        value = getattr(new, name)
        if value is not None and value <= 0:
            yield f"/{name}", f"expected a number above 0, found {value}"


def _row(new: NewExecution, action: Action, *, requested_by: str, now: datetime) -> Execution:
    deadline_seconds = new.deadline_seconds or settings.MUSTER.deadline_seconds
    return Execution(
        action=action,
        action_ref=action.ref,
        parameters=new.parameters,
        priority=new.priority,
        pinned_worker_id=new.worker_id,
        timeout_seconds=new.timeout_seconds
        or action.timeout_seconds
        or settings.MUSTER.default_timeout_seconds,
        queue_ttl_ms=new.queue_ttl_ms or action.queue_ttl_ms,
        deadline_at=now + timedelta(seconds=deadline_seconds),
        requested_by=requested_by,
        correlation_id=new.correlation_id,
        idempotency_key=new.idempotency_key,
        created_at=now,
    )


def _taken_before(keyed: Mapping[str, Execution]) -> dict[str, Execution]:
    """The rows that hold these keys now, ours or earlier ones."""
    taken = {}
    for row in Execution.objects.filter(idempotency_key__in=keyed):
        wanted = keyed[str(row.idempotency_key)]
        if (row.action_ref, row.parameters) != (wanted.action_ref, wanted.parameters):
            raise IdempotencyConflict(
                f"The idempotency key {row.idempotency_key!r} belongs to execution {row.pk}, "
                "which has another action or other parameters"
            )
        taken[str(row.idempotency_key)] = row
    return taken
