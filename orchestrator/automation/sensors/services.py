"""The lives of sensor services: begun, renewed with all leases at once, ended."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import F, FloatField, IntegerField, QuerySet, TextField, Value

from orchestrator.automation.models import Assignment, SensorService
from orchestrator.core import presence

KEPT = timedelta(days=1)
"""Former lives are removed after this time."""


def lease_seconds() -> float:
    seconds: float = settings.MUSTER.sensor_lease_seconds
    return seconds


def begin(name: str, *, labels: Mapping[str, str], now: datetime) -> SensorService:
    """Begin a life. Others of the same name may live: what they run is theirs."""
    over = SensorService.objects.filter(heartbeat_at__lt=now - KEPT, assignments__isnull=True)
    over.delete()
    return SensorService.objects.create(
        name=name, host=socket.gethostname(), labels=dict(labels), started_at=now, heartbeat_at=now
    )


def renew(service: SensorService, *, now: datetime) -> dict[UUID, int]:
    """Renew the leases of a service; the fence of each assignment that it still has.

    A lease that ran out while nobody took it goes on: only the fence decides.
    """
    until = now + timedelta(seconds=lease_seconds())
    with transaction.atomic():
        lives = SensorService.objects.filter(pk=service.pk)
        if not lives.update(heartbeat_at=now, stopped_at=None):
            service.heartbeat_at = now
            service.save(force_insert=True)  # it was away for so long that it was removed
        held = Assignment.objects.held().filter(service=service)
        held.update(lease_until=until)
        return dict(held.values_list("pk", "fence"))


def lives(*, now: datetime) -> QuerySet[Any]:
    """Those that were heard of not long ago; they renew more often than twice a lease."""
    return presence.columns(
        SensorService.objects.filter(heartbeat_at__gte=now - presence.LISTED),
        kind=Value("sensor"),
        seen_at=F("heartbeat_at"),
        pid=Value(None, IntegerField()),
        silent_after_seconds=Value(lease_seconds(), FloatField()),
        trouble=Value("", TextField()),
    )


def end(service: SensorService, *, now: datetime) -> None:
    """End a life that has given up its leases."""
    SensorService.objects.filter(pk=service.pk).update(stopped_at=now)
