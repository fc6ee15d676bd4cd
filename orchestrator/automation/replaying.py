"""Ask rules about an old event again: a new event with the same content."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from orchestrator.automation.models import Event, Rule
from orchestrator.automation.recording import NewEvent, Recorded, record_many
from orchestrator.core.errors import NotFound


class UnknownEvent(NotFound):
    """No event has this id."""


def replay(
    event_id: UUID, *, rule: Rule | None = None, sent_by: str, now: datetime, token: str = ""
) -> Recorded:
    """Record an event again, for one rule or for all of its trigger, as those are now; with the
    same token once.

    Raises UnknownEvent, and EventsRefused if its trigger's type does not take its payload any more.
    """
    rows = Event.objects.select_related("trigger__type").filter(pk=event_id)
    if (event := rows.first()) is None:
        raise UnknownEvent(f"No event has the id {event_id}")
    new = NewEvent(
        trigger=event.trigger,
        payload=event.payload,
        occurred_at=event.occurred_at,
        correlation_id=event.correlation_id,
        source="replay",
        sent_by=sent_by,
        cause_execution_id=event.cause_execution_id,
        depth=event.depth,
        only_rule=rule,
        key=f"replay:{token}" if token else None,
    )
    return record_many([new], now=now, by_muster=True)[0]
