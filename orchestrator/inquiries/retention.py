"""Inquiries that may be removed."""

from __future__ import annotations

from datetime import datetime

from django.db.models import Exists, OuterRef, QuerySet

from orchestrator.core.models import Execution
from orchestrator.core.models.time_ordered import uuid7_floor
from orchestrator.inquiries.models import Inquiry, InquiryWait


def old_inquiries(before: datetime) -> QuerySet[Inquiry]:
    """Inquiries that ended before this, of executions that are gone, and for which only such
    waited: as long as those are shown, they say what was asked, and what is secret in the answer.
    """
    asking = Execution.objects.filter(pk=OuterRef("asked_by_execution_id"))
    of_it = InquiryWait.objects.filter(inquiry=OuterRef("pk"))
    waiting = of_it.filter(Exists(Execution.objects.filter(pk=OuterRef("execution_id"))))
    return (
        Inquiry.objects.filter(pk__lt=uuid7_floor(before), ended_at__lt=before)
        .exclude(Exists(asking))
        .exclude(Exists(of_it.open()))
        .exclude(Exists(waiting))
    )
