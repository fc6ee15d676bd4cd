"""Messages of ours about executions: what each says, and how it is read.

Each is a Celery task message (protocol 2), so that stock tools understand it. Nothing here sends.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from django.conf import settings

from orchestrator.core import topology
from orchestrator.core.lanes import RawMessage
from orchestrator.core.states import AttemptKey

SCHEDULE = "muster.schedule"
COMPLETED = "muster.completed"
RUN = "muster.run"
CANCEL = "muster.cancel"
STATUS_CHANGED = "muster.status_changed"

EXECUTION_IDS = "execution_ids"
ATTEMPTS = "attempts"
MOST_ATTEMPTS = 32
"""The most that one dispatch lists. A longer list saves little, and its message is acknowledged
only when the last of its attempts is claimed."""

UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""Errors of reading a body that is not one of our messages."""


@dataclass(frozen=True)
class Message:
    """A task message: ids and the attempt, never state."""

    task: str
    routing_key: str
    kwargs: dict[str, Any]
    id: str = field(default_factory=lambda: str(uuid4()))
    expiration_ms: int | None = None
    listed: str = ""
    """The argument that holds ids, in a message about many."""
    exchange: str = field(default_factory=topology.executions_exchange)

    def headers(self) -> dict[str, Any]:
        return {
            "lang": "py",
            "task": self.task,
            "id": self.id,
            "root_id": self.id,
            "parent_id": None,
            "group": None,
            "retries": 0,
            "timelimit": [None, None],
            "argsrepr": "()",
            "kwargsrepr": _shown(self.kwargs),
            "ignore_result": True,
        }

    def body(self) -> bytes:
        return json.dumps([[], self.kwargs, {}], separators=(",", ":")).encode()

    def properties(self) -> dict[str, Any]:
        properties: dict[str, Any] = {
            "content_type": "application/json",
            "content_encoding": "utf-8",
            "correlation_id": self.id,
        }
        if self.expiration_ms is not None:
            properties["expiration"] = str(self.expiration_ms)
        return properties

    def raw(self) -> RawMessage:
        return RawMessage(
            self.body(), self.routing_key, self.exchange, self.headers(), self.properties()
        )


def requested(execution_ids: Sequence[UUID]) -> list[Message]:
    """Tell the executors that these were accepted."""
    return about_many(SCHEDULE, topology.REQUESTED, execution_ids)


def completed(execution_ids: Sequence[UUID]) -> list[Message]:
    """Tell the executors that these ended."""
    return about_many(COMPLETED, topology.COMPLETED, execution_ids)


def status_changed(execution_ids: Sequence[UUID]) -> list[Message]:
    """Tell the executors that the statuses of these changed: see `automation.following`."""
    return about_many(STATUS_CHANGED, topology.STATUS_CHANGED, execution_ids)


def dispatch(
    attempts: Sequence[AttemptKey], *, worker_id: int, ttl_ms: int | None = None
) -> Message:
    """Tell one worker to run these attempts. `ttl_ms` only if it is shorter than the queue's."""
    kwargs: dict[str, Any] = about(attempts[0])
    if len(attempts) > 1:
        kwargs = {ATTEMPTS: [[str(execution_id), number] for execution_id, number in attempts]}
    return Message(
        task=RUN,
        routing_key=topology.dispatch_key(worker_id),
        kwargs=kwargs,
        id=name_of(attempts[0]),
        expiration_ms=ttl_ms,
    )


def dispatched(kwargs: Mapping[str, Any]) -> list[AttemptKey]:
    """Read the attempts that a dispatch names; never none. Raises the errors of UNREADABLE."""
    pairs = (
        kwargs[ATTEMPTS] if ATTEMPTS in kwargs else [(kwargs["execution_id"], kwargs["attempt"])]
    )
    attempts = [(UUID(execution_id), int(number)) for execution_id, number in pairs]
    # a number that no column holds would be an error of each claim that it is in
    if not attempts or not all(0 < number < 2**31 for _, number in attempts):
        raise ValueError("a dispatch of no attempt, or with a number that is none")
    return attempts


def about(attempt: AttemptKey) -> dict[str, Any]:
    """The arguments of a message about one attempt."""
    execution_id, number = attempt
    return {"execution_id": str(execution_id), "attempt": number}


def _shown(kwargs: Mapping[str, Any]) -> str:
    """The arguments as Celery's tools show them: of a list of attempts, the first."""
    if ATTEMPTS not in kwargs:
        return repr(kwargs)
    first, *others = kwargs[ATTEMPTS]
    return f"{{{ATTEMPTS!r}: [{first}, and {len(others)} more]}}"


def name_of(attempt: AttemptKey) -> str:
    """The name of an attempt as a Celery task: the id of its message."""
    execution_id, number = attempt
    return f"{execution_id}.{number}"


def cancel(*, execution_id: UUID, attempt: int, worker_id: int) -> Message:
    """Tell one worker to stop one attempt."""
    return Message(
        task=CANCEL,
        routing_key=topology.cancel_key(worker_id),
        kwargs=about((execution_id, attempt)),
    )


def about_many(
    task: str,
    routing_key: str,
    ids: Sequence[UUID] | Sequence[str],
    *,
    listed: str = EXECUTION_IDS,
    exchange: str = "",
) -> list[Message]:
    """Build messages that name all of these ids, a batch in each."""
    size: int = settings.MUSTER.batch_size
    return [
        Message(
            task=task,
            routing_key=routing_key,
            kwargs={listed: [str(id) for id in ids[start : start + size]]},
            listed=listed,
            exchange=exchange or topology.executions_exchange(),
        )
        for start in range(0, len(ids), size)
    ]
