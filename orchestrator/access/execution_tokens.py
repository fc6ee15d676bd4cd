"""Tokens of executions: an action that asks for one gets it from its worker, and acts by it as its
execution alone.

A text is random, and its digest is stored beside the attempt that it was made for. It is accepted
while that attempt runs, on the life of the worker that claimed it. Workers share no key with the
API: one that is taken over can make tokens of what it runs, and no others.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.db.models import Exists, F, OuterRef

from orchestrator.access.authorizer import OfExecution
from orchestrator.access.models import ExecutionToken
from orchestrator.core import packs
from orchestrator.core.models import Execution
from orchestrator.core.states import ExecutionStatus

PREFIX = "mse_"
PERMISSIONS = frozenset({"inquiries.ask", "inquiries.read", "inquiries.respond"})
SECRET_BYTES = 32
LONGEST = 100


def is_wanted(execution: Execution) -> bool:
    """Return True if the execution's action gets a token."""
    return execution.action.runtime_options.get(packs.TOKEN) is True


def issue(executions: Sequence[Execution]) -> dict[UUID, str]:
    """Make a token for each of these claimed executions, in one statement; returns them by id."""
    texts: dict[UUID, str] = {}
    rows = []
    for execution in executions:
        assert execution.worker_incarnation is not None
        text = texts[execution.pk] = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
        rows.append(
            ExecutionToken(
                digest=_digest(text),
                execution_id=execution.pk,
                attempt=execution.attempt,
                worker_incarnation=execution.worker_incarnation,
            )
        )
    ExecutionToken.objects.bulk_create(rows)
    return texts


def authenticate(text: str) -> OfExecution | None:
    """Return the execution whose token this is; None if nobody made the text, or that attempt does
    not run."""
    if len(text) > LONGEST:
        return None
    found = ExecutionToken.objects.filter(
        digest=_digest(text),
        execution__attempt=F("attempt"),
        execution__worker_incarnation=F("worker_incarnation"),
        execution__status=ExecutionStatus.RUNNING,
    ).values_list("execution_id", "execution__action_ref")
    if (row := found.first()) is None:
        return None
    execution_id, action_ref = row
    return OfExecution(
        actor=f"execution:{execution_id}",
        execution_id=execution_id,
        action_ref=action_ref,
        permissions=PERMISSIONS,
    )


def prune(*, now: datetime) -> dict[str, int]:
    """Remove the tokens of attempts that do not run any more."""
    running = Execution.objects.filter(
        pk=OuterRef("execution_id"),
        attempt=OuterRef("attempt"),
        worker_incarnation=OuterRef("worker_incarnation"),
        status=ExecutionStatus.RUNNING,
    )
    removed, _ = ExecutionToken.objects.exclude(Exists(running)).delete()
    return {"removed": removed}


def _digest(text: str) -> str:
    """256 random bits need no salt."""
    return hashlib.sha256(text.encode()).hexdigest()
