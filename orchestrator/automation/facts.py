"""The facts of an event that a rule's criteria and parameters may read."""

from __future__ import annotations

from orchestrator.automation.criteria import Facts
from orchestrator.automation.models import Event


def facts_of(event: Event) -> Facts:
    """The facts of an event that is loaded with its trigger."""
    return Facts(
        trigger=event.payload,
        received_at=event.received_at,
        event={
            "id": str(event.pk),
            "type": event.type_ref,
            "key": event.dedup_key,
            "source": event.source,
            "sent_by": event.sent_by,
            "correlation_id": event.correlation_id,
            "depth": event.depth,
            "received_at": event.received_at.isoformat(),
            "occurred_at": event.occurred_at.isoformat() if event.occurred_at else None,
            "parameters": event.trigger.parameters,
        },
    )
