"""A sensor that fails starts again for ever, and somebody is told."""

from __future__ import annotations

from datetime import timedelta

import pytest

from orchestrator.automation.models import Event
from orchestrator.automation.sensors import assignments, condition, services
from orchestrator.core.models import DLQEntry
from tests.automation.sensors import making
from tests.automation.sensors.making import ACTOR, make_sensor, make_service, row_of, taken
from tests.factories import NOW, seconds

pytestmark = pytest.mark.usefixtures("database")


def fail(lease: assignments.Lease, *, at: float, lived: float = 0) -> bool:
    return assignments.fail(
        lease, "it broke", lived=timedelta(seconds=lived), now=NOW + seconds(at), actor=ACTOR
    )


def test_sensor_that_fails_starts_again_after_longer_and_longer_pauses_for_ever() -> None:
    make_sensor()
    service = make_service()
    at, pauses = 0.0, []
    for _ in range(12):
        lease = taken(service, now=NOW + seconds(at))
        assert fail(lease, at=at)
        row = row_of()
        assert row.state == "backing_off"
        assert row.next_start_at is not None
        pauses.append((row.next_start_at - NOW).total_seconds() - at)
        assert making.take(service, now=row.next_start_at - seconds(0.5)) == []
        at = (row.next_start_at - NOW).total_seconds()
        services.renew(service, now=NOW + seconds(at))
    assert pauses[:7] == [1, 2, 4, 8, 16, 32, 60]
    assert set(pauses[7:]) == {60}
    assert row_of().restarts == 12


def test_life_of_a_minute_makes_the_next_pause_short_again() -> None:
    make_sensor()
    service = make_service()
    for at in (0, 10, 20):
        fail(taken(service, now=NOW + seconds(at)), at=at)
    lease = taken(service, now=NOW + seconds(30))
    fail(lease, at=90, lived=60)
    assert row_of().failures == 1
    assert row_of().next_start_at == NOW + seconds(91)


def test_five_failures_in_ten_minutes_are_looked_into_and_are_an_event() -> None:
    make_sensor()
    service = make_service()
    for at in range(0, 300, 60):
        services.renew(service, now=NOW + seconds(at))
        fail(taken(service, now=NOW + seconds(at)), at=at)
        assert DLQEntry.objects.exists() == (at == 240)
    entry = DLQEntry.objects.get()
    assert (entry.dlq_reason, entry.subject_name, entry.detail) == (
        "sensor_failing", "shop.watch", "it broke",
    )  # fmt: skip
    event = Event.objects.get(type_ref="core.sensor")
    assert event.payload["change"] == "failing"
    assert condition.warnings(now=NOW + seconds(241)) == [
        "sensor shop.watch: fails again and again"
    ]
    services.renew(service, now=NOW + seconds(360))
    fail(taken(service, now=NOW + seconds(360)), at=360)
    assert Event.objects.filter(type_ref="core.sensor").count() == 1, "while it is looked into"


@pytest.mark.parametrize(("lived", "is_looked_into"), [(60.0, False), (0.0, True)])
def test_five_failures_in_an_hour_are_looked_into_if_it_never_lived(
    lived: float, is_looked_into: bool
) -> None:
    make_sensor()
    service = make_service()
    for at in range(0, 3600, 660):
        services.renew(service, now=NOW + seconds(at))
        fail(taken(service, now=NOW + seconds(at)), at=at, lived=lived)
    assert DLQEntry.objects.exists() == is_looked_into
    assert bool(condition.warnings(now=NOW + seconds(3301))) == is_looked_into
