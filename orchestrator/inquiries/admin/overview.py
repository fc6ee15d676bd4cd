"""The inquiries on the admin's first page."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.urls import reverse

from orchestrator.core import authority
from orchestrator.core.admin.dashboard import Card
from orchestrator.core.authority import Principal
from orchestrator.inquiries.models import Inquiry
from orchestrator.inquiries.states import KINDS, InquiryState

SOON = timedelta(hours=1)


def boxes(now: datetime, user: Principal) -> list[tuple[str, list[Card]]]:
    """Count the open inquiries, and those that expire soon; nothing without any."""
    if not authority.may(user, "inquiries.read"):
        return []
    rows = Inquiry.objects.visible_to(user).open()
    if not (count := rows.count()):
        return []
    soon = rows.filter(expires_at__lte=now + SOON).count()
    card = Card(
        name=InquiryState.PENDING,
        kind=KINDS[InquiryState.PENDING],
        count=count,
        url=f"{reverse('admin:inquiries_inquiry_changelist')}?state={InquiryState.PENDING}",
        note=f"{soon:,} within the hour" if soon else "",
    )
    return [("Open inquiries", [card])]
