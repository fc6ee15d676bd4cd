"""Cancel: at once before the claim, by a message to the worker after it."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from django.conf import settings
from django.db import transaction

from orchestrator.core import authority, messages, relay, tracing
from orchestrator.core.authority import Principal
from orchestrator.core.errors import Conflict
from orchestrator.core.executions.requests import UnknownExecution
from orchestrator.core.models import Execution
from orchestrator.core.models.executions import CANCEL_REASON_MAX
from orchestrator.core.reasons import Reason
from orchestrator.core.state_machine import TransitionConflict, transition
from orchestrator.core.states import ExecutionStatus

CANCEL_TRIES = 5
"""A cancel gives up after losing this many races in a row; each lost race means that the execution
moved."""


class AlreadyOver(Conflict):
    """The execution has ended; there is nothing to cancel."""

    kind = "already-over"


def cancel(
    *,
    execution_id: UUID,
    actor: str,
    now: datetime,
    reason: str = "",
    principal: Principal | None = None,
) -> Execution:
    """Cancel an execution: at once before the claim, by a message to its worker after it. The
    reason is kept in the row, up to 500 characters of it.

    Returns the row as it is now: `cancelled`, or `canceling` until the worker confirms. One that is
    beyond the reach of `principal` is unknown; without a principal, Muster itself cancels it.
    Raises UnknownExecution, AlreadyOver, and TransitionConflict after too many lost races.
    """
    for _ in range(CANCEL_TRIES):
        execution = Execution.objects.filter(pk=execution_id).first()
        if execution is None or not _may_cancel(execution, principal):
            raise UnknownExecution(f"No execution has the id {execution_id}")
        if execution.status == ExecutionStatus.CANCELING:
            return execution
        if execution.is_terminal:
            raise AlreadyOver(f"Execution {execution_id} is over: {execution.status}")
        try:
            return _cancel(execution, actor=actor, reason=reason[:CANCEL_REASON_MAX], now=now)
        except TransitionConflict:
            continue  # it was claimed, retried or ended meanwhile: look again
    raise TransitionConflict(f"Execution {execution_id} keeps changing; try again")


def _may_cancel(execution: Execution, principal: Principal | None) -> bool:
    return principal is None or authority.may(principal, "executions.cancel", execution.place)


def _cancel(execution: Execution, *, actor: str, reason: str, now: datetime) -> Execution:
    began_ns = tracing.clock_ns()
    if execution.status != ExecutionStatus.RUNNING:
        message = f"by {actor}: {reason}" if reason else f"by {actor}"
        cancelled = transition(
            execution,
            "cancel",
            now=now,
            actor=actor,
            reason=Reason.CANCELLED,
            cancel_reason=reason,
            result={"error": Reason.CANCELLED.text, "message": message, "failed_by": actor},
        )
        transaction.on_commit(partial(relay.send_soon, messages.completed([execution.pk])))
        transaction.on_commit(
            partial(
                tracing.ended,
                [execution],
                reason=Reason.CANCELLED,
                actor=actor,
                began_ns=began_ns,
            )
        )
        return cancelled
    muster = settings.MUSTER
    grace = timedelta(seconds=muster.cancel_grace_seconds + muster.run_grace_seconds)
    canceling = transition(
        execution,
        "request_cancel",
        now=now,
        actor=actor,
        cancel_reason=reason,
        run_deadline_at=min(execution.run_deadline_at or now + grace, now + grace),
    )
    order = messages.cancel(
        execution_id=canceling.pk,
        attempt=canceling.attempt,
        worker_id=canceling.worker_id or 0,
    )
    transaction.on_commit(partial(relay.send_soon, [order]))
    return canceling
