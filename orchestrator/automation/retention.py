"""Events, suppressions and histories of sensors that may be removed."""

from __future__ import annotations

from datetime import datetime

from django.db.models import Exists, OuterRef, QuerySet

from orchestrator.automation.models import AssignmentEvent, Enforcement, Event, Suppression
from orchestrator.core import retention
from orchestrator.core.models.time_ordered import uuid7_floor


def old_events(before: datetime) -> QuerySet[Event]:
    """Events that were evaluated before this, whose enforcements have all ended, and that nobody
    investigates."""
    open_ones = Enforcement.objects.open().filter(event=OuterRef("pk"))
    return (
        Event.objects.filter(pk__lt=uuid7_floor(before), evaluated_at__lt=before)
        .exclude(Exists(open_ones))
        .exclude(retention.has_pending_entry())
    )


def old_suppressions(before: datetime) -> QuerySet[Suppression]:
    """Suppressions that ended before this."""
    return Suppression.objects.filter(until__lt=before)


def old_assignment_events(before: datetime) -> QuerySet[AssignmentEvent]:
    """The history of assignments of sensors before this."""
    return AssignmentEvent.objects.filter(at__lt=before)
