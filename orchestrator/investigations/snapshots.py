"""What an entry keeps of its subject: enough to investigate when the rows have moved on."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from orchestrator.models import Execution
from orchestrator.redaction import redacted


def of_execution(execution: Execution) -> dict[str, Any]:
    """The execution as it is now, its secrets redacted. It comes with its worker and action."""
    return {
        "id": str(execution.pk),
        "action_ref": execution.action_ref,
        "parameters": redacted(execution.parameters, schema=execution.action.parameters_schema),
        "status": str(execution.status),
        "attempt": execution.attempt,
        "retry_count": execution.retry_count,
        "priority": execution.priority,
        "correlation_id": execution.correlation_id,
        "worker": execution.worker.name if execution.worker else None,
        "created_at": execution.created_at.isoformat(),
        "scheduled_at": _text(execution.scheduled_at),
        "start_by": _text(execution.start_by),
    }


def _text(at: datetime | None) -> str | None:
    return at.isoformat() if at else None
