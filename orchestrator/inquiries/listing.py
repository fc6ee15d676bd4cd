"""The selection of inquiries for lists, the same on every face."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.db.models import Q

from orchestrator.inquiries.models import Inquiry
from orchestrator.inquiries.models.inquiries import InquiryQuerySet
from orchestrator.inquiries.states import InquiryState


def inquiries(
    visible: InquiryQuerySet,
    *,
    state: Sequence[InquiryState | str] = (),
    execution_id: UUID | None = None,
    pack: str | None = None,
) -> tuple[InquiryQuerySet, InquiryQuerySet | None]:
    """Those that meet all conditions, and what a condition without an index looks at."""
    in_state = Q(state__in=[str(each) for each in state]) if state else Q()
    rows = visible.filter(in_state)
    if execution_id is not None:
        asked = Q(asked_by_execution=execution_id)
        rows = rows.filter(asked | Q(waits__execution=execution_id)).distinct()
    if pack is not None:
        rows = rows.filter(pack=pack)
    has_index = execution_id is not None or pack is None
    return rows, None if has_index else Inquiry.objects.filter(in_state)
