"""Buckets that count nothing any more."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Exists, OuterRef, Q, QuerySet

from orchestrator.policies.models import Policy, PolicyBucket, PolicySlot, PolicyWait

LONGEST_PERIOD = timedelta(days=32)


def empty_buckets(before: datetime) -> QuerySet[PolicyBucket]:
    """Those in which nothing has started since then, whose period and window are over, and that
    nobody holds or waits for."""
    slots = PolicySlot.objects.filter(bucket=OuterRef("pk"))
    waits = PolicyWait.objects.filter(bucket=OuterRef("pk"))
    is_over = ~Q(policy__kind=Policy.Kind.QUOTA) | Q(used_at__lt=before - LONGEST_PERIOD)
    is_even = Q(theoretical_at__isnull=True) | Q(theoretical_at__lt=before)
    rows = PolicyBucket.objects.filter(is_over, is_even, used_at__lt=before)
    return rows.filter(~Exists(slots), ~Exists(waits))
