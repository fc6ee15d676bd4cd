"""Executions that may not be removed yet."""

from __future__ import annotations

from datetime import datetime

from django.db.models import Exists, OuterRef, QuerySet

from orchestrator.queues.models import Ticket


def belongs_to_a_ticket() -> Exists:
    """The condition for executions whose ticket is still there."""
    return Exists(Ticket.objects.filter(execution=OuterRef("pk")))


def old_tickets(before: datetime) -> QuerySet[Ticket]:
    """Those told before then that no later ticket continues: copies of their messages are no longer
    known for what they are."""
    continued = Ticket.objects.filter(continues=OuterRef("pk"))
    return Ticket.objects.filter(~Exists(continued), told_at__lt=before)
