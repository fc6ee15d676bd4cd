"""Bulk orders that may be removed."""

from __future__ import annotations

from datetime import datetime

from orchestrator.bulk.models.orders import BulkOrder, BulkOrderQuerySet
from orchestrator.core.models.time_ordered import uuid7_floor


def old_orders(before: datetime) -> BulkOrderQuerySet:
    """Orders that ended before this."""
    return BulkOrder.objects.filter(pk__lt=uuid7_floor(before), ended_at__lt=before)
