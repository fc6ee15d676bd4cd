"""Run again what has ended: the same request, accepted a second time."""

from __future__ import annotations

from datetime import datetime

from orchestrator.core import contents, queue_terms
from orchestrator.core.authority import Principal
from orchestrator.core.errors import Conflict
from orchestrator.core.executions.new_execution import NewExecution
from orchestrator.core.executions.requests import request
from orchestrator.core.models import Execution


class NotToBeRunAgain(Conflict):
    """The execution is open, or an app requested it, which runs it again itself."""

    kind = "not-to-be-run-again"


def run_again(
    execution: Execution, *, token: str, by: str, principal: Principal, now: datetime
) -> Execution:
    """Request once more what this execution was asked to do; returns the new one.

    `token`: the same one for the same wish, so that a form that is sent twice makes one execution.
    The new one has the old one's correlation id, or else its id, so that a search finds both.
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
        idempotency_key=f"again:{execution.pk}:{token}",
        correlation_id=execution.correlation_id or str(execution.pk),
    )
    return request(new, requested_by=by, principal=principal, now=now)
