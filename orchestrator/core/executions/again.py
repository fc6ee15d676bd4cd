"""Run again what has ended: the same request, accepted a second time."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models.functions import Left
from django.db.models.lookups import Exact

from orchestrator.core import contents, queue_terms
from orchestrator.core.authority import Principal
from orchestrator.core.errors import Conflict
from orchestrator.core.executions.new_execution import NewExecution
from orchestrator.core.executions.requests import request
from orchestrator.core.models import Execution
from orchestrator.core.models.executions import ExecutionQuerySet

AGAIN = "again:"
"""The beginning of the idempotency key of a request that runs an execution again."""


class NotToBeRunAgain(Conflict):
    """The execution is open, or an app requested it, which runs it again itself."""

    kind = "not-to-be-run-again"


def run_again(
    execution: Execution,
    *,
    token: str,
    by: str,
    principal: Principal,
    now: datetime,
    reason: str = "",
) -> Execution:
    """Request once more what this execution was asked to do; returns the new one.

    `token`: the same one for the same wish, so that a form that is sent twice makes one execution.
    `reason`: kept in the new one, which has the old one's correlation id, or else its id, so that a
    search finds both.
    Raises NotToBeRunAgain, and what `request` raises.
    """
    if not execution.is_terminal:
        raise NotToBeRunAgain(f"Execution {execution.pk} has not ended: {execution.status}")
    if secrets := contents.secrets_of([execution]).get(execution.pk):
        raise NotToBeRunAgain(f"Execution {execution.pk} {secrets.again}")
    new = NewExecution(
        action_ref=execution.action_ref,
        parameters=execution.parameters,
        queue=execution.queue or queue_terms.DEFAULT,
        worker_id=execution.pinned_worker_id,
        worker_selector=execution.worker_selector,
        priority=execution.priority,
        timeout_seconds=execution.timeout_seconds,
        queue_ttl_ms=execution.queue_ttl_ms,
        scheduled_timeout_seconds=execution.scheduled_timeout_seconds,
        retry=execution.retry_policy,
        deadline_seconds=(execution.deadline_at - execution.created_at).total_seconds(),
        reason=reason,
        **as_again(execution, token),
    )
    return request(new, requested_by=by, principal=principal, now=now)


def as_again(execution: Execution, token: str) -> dict[str, Any]:
    """The idempotency key and the correlation id of a request that runs this execution again, with
    changes or without: by them `origin` and `reruns` find each other."""
    return {
        "idempotency_key": f"{AGAIN}{execution.pk}:{token}",
        "correlation_id": execution.correlation_id or str(execution.pk),
    }


def origin_id(execution: Execution) -> UUID | None:
    """The id of the execution that this one runs again; None if it was requested by itself."""
    key = execution.idempotency_key or ""
    if not key.startswith(AGAIN):
        return None
    try:
        return UUID(key.removeprefix(AGAIN).partition(":")[0])
    except ValueError:
        return None


def reruns(execution: Execution) -> ExecutionQuerySet:
    """The executions that run this one again, of those with its correlation id: by its index."""
    correlation_id = execution.correlation_id or str(execution.pk)
    key = f"{AGAIN}{execution.pk}:"
    # no LIKE, for which databases differ in whether capitals count
    begins = Exact(Left("idempotency_key", len(key)), key)
    return Execution.objects.filter(begins, correlation_id=correlation_id)
