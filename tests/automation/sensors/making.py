"""Sensors of a shop, and the services that may run them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from orchestrator.automation import trigger_types
from orchestrator.automation.models import Assignment, Sensor, SensorService
from orchestrator.automation.sensors import assignments, catalogue, reports, services
from orchestrator.automation.sensors.assignments import Lease
from orchestrator.automation.sensors.catalogue import NewSensor
from orchestrator.automation.sensors.reports import Report
from orchestrator.core.models import Pack
from tests.automation import play
from tests.factories import NOW

WATCH = "shop.watch"
ACTOR = "sensor:s1"


def make_sensor(
    ref: str = WATCH, *, now: datetime = NOW, path: Path | str = "/nowhere", **values: Any
) -> Sensor:
    """A sensor that reports orders, the only one of its pack."""
    play.make_type()
    trigger_types.install_built_in(now=now)
    pack, _ = Pack.objects.get_or_create(
        name=ref.partition(".")[0],
        defaults={"version": "1.0.0", "path": str(path), "installed_at": now},
    )
    if pack.path != str(path):
        pack.path = str(path)
        pack.save()
    known: dict[str, Any] = {
        "runtime": "shell",
        "entry_point": ["true"],
        "trigger_types": [play.ORDER],
    }
    catalogue.install_all([NewSensor(ref=ref, **{**known, **values})], pack=pack, now=now)
    return catalogue.find(ref)


def make_service(
    name: str = "s1", *, labels: Mapping[str, str] | None = None, now: datetime = NOW
) -> SensorService:
    return services.begin(name, labels=labels or {}, now=now)


def take(service: SensorService, *, now: datetime = NOW) -> list[Assignment]:
    """Take whatever there is."""
    return assignments.take(
        service, fits=lambda sensor: sensor.labels.items() <= service.labels.items(), now=now
    )


def taken(service: SensorService, *, now: datetime = NOW) -> Lease:
    """Take the only sensor; the lease."""
    [row] = take(service, now=now)
    return Lease(row.pk, row.fence, row.sensor)


def row_of(ref: str = WATCH) -> Assignment:
    return Assignment.objects.select_related("sensor", "service").get(sensor__ref=ref)


def orders(*numbers: int, **values: Any) -> Sequence[Report]:
    return [
        Report(trigger=play.ORDER, payload={"number": number}, key=str(number), **values)
        for number in numbers
    ]


def record(lease: Lease, *numbers: int, cursor: Any = None, now: datetime = NOW) -> list[str]:
    return reports.record(lease, orders(*numbers), cursor=cursor, now=now)
