"""Numbers and causes that are old enough to go."""

from __future__ import annotations

from datetime import datetime

from django.db.models import QuerySet

from orchestrator.rollups.models import (
    HOUR,
    Arrivals,
    Durations,
    Failure,
    FailureCount,
    FailureGroup,
)


def fine_arrivals(before: datetime) -> QuerySet[Arrivals]:
    """By minute and by quarter of an hour."""
    return Arrivals.objects.filter(minutes__lt=HOUR, start__lt=before)


def hourly_arrivals(before: datetime) -> QuerySet[Arrivals]:
    return Arrivals.objects.filter(minutes=HOUR, start__lt=before)


def fine_durations(before: datetime) -> QuerySet[Durations]:
    """By minute and by quarter of an hour."""
    return Durations.objects.filter(minutes__lt=HOUR, start__lt=before)


def hourly_durations(before: datetime) -> QuerySet[Durations]:
    return Durations.objects.filter(minutes=HOUR, start__lt=before)


def failures(before: datetime) -> QuerySet[Failure]:
    return Failure.objects.filter(at__lt=before)


def failure_counts(before: datetime) -> QuerySet[FailureCount]:
    return FailureCount.objects.filter(start__lt=before)


def causes(before: datetime) -> QuerySet[FailureGroup]:
    """Those that did not occur since."""
    return FailureGroup.objects.filter(last__lt=before)
