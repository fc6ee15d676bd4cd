"""One service runs a sensor; what it lost is taken by another, and nothing is given up."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction

from orchestrator.automation import assigning
from orchestrator.automation.models import Assignment, AssignmentEvent, Event, SensorService
from orchestrator.automation.sensors import assignments, catalogue, condition, services
from orchestrator.automation.sensors.assignments import Lease
from orchestrator.automation.sensors.reports import LeaseLost
from orchestrator.core import clock
from orchestrator.core.steady_clock import seconds_counted
from tests.automation.sensors import making
from tests.automation.sensors.making import ACTOR, make_sensor, make_service, record, row_of, taken
from tests.factories import NOW, seconds

pytestmark = pytest.mark.django_db


def test_sensor_is_taken_by_one_service_with_a_lease() -> None:
    make_sensor()
    first, second = make_service("s1"), make_service("s2")
    lease = taken(first)
    assert making.take(second, now=NOW + seconds(10)) == []
    row = row_of()
    assert (row.state, row.service, row.fence) == ("starting", first, 1)
    assert row.lease_until == NOW + seconds(30)
    assert assignments.ready(lease, now=NOW, actor=ACTOR)
    assert row_of().state == "running"
    assert [each.event for each in AssignmentEvent.objects.all()] == ["take", "ready"]


def test_sensor_is_taken_only_by_a_service_that_has_its_labels() -> None:
    make_sensor(labels={"site": "b"})
    assert making.take(make_service("s1", labels={"site": "a"})) == []
    assert making.take(make_service("s2", labels={"site": "b", "rack": "1"}))


def test_lease_that_ran_out_is_lost_and_what_its_holder_reports_then_is_refused() -> None:
    make_sensor()
    lease = taken(make_service("s1"))
    record(lease, 1, cursor={"at": 1})
    assert assignments.release_overdue(now=NOW + seconds(30)) == 0
    assert assignments.release_overdue(now=NOW + seconds(31)) == 1
    with pytest.raises(LeaseLost):
        record(lease, 2, cursor={"at": 2})
    other = taken(make_service("s2", now=NOW + seconds(31)), now=NOW + seconds(31))
    with pytest.raises(LeaseLost):
        record(lease, 2, cursor={"at": 2})
    assert row_of().cursor == {"at": 1}
    record(other, 2, cursor={"at": 2}, now=NOW + seconds(32))
    assert row_of().cursor == {"at": 2}
    assert Event.objects.filter(type_ref="shop.order").count() == 2
    lost = Event.objects.get(type_ref="core.sensor")
    assert lost.payload == {"sensor": "shop.watch", "change": "lost", "service": "s1"}


def test_lease_that_nobody_took_goes_on_when_its_service_awakes() -> None:
    make_sensor()
    service = make_service()
    lease = taken(service)
    late = NOW + seconds(300)
    assert services.renew(service, now=late) == {lease.assignment_id: lease.fence}
    assert assignments.release_overdue(now=late) == 0
    record(lease, 1, now=late)


def test_service_that_was_removed_while_it_slept_lives_again() -> None:
    service = make_service()
    SensorService.objects.all().delete()
    services.renew(service, now=NOW + timedelta(days=2))
    assert SensorService.objects.get().heartbeat_at == NOW + timedelta(days=2)


def test_who_stops_leaves_its_sensors_to_others_at_once() -> None:
    make_sensor()
    lease = taken(make_service("s1"))
    assignments.give_up([lease], now=NOW, actor=ACTOR)
    assert row_of().state == "vacant"
    with pytest.raises(LeaseLost):
        record(lease, 1)
    assert taken(make_service("s2")).fence == 2


def test_disabled_sensor_is_ended_and_restarted_one_is_taken_again_with_its_cursor() -> None:
    make_sensor()
    service = make_service()
    lease = taken(service)
    record(lease, 1, cursor={"at": 1})
    catalogue.restart(making.WATCH, now=NOW, actor="me")
    assert (row_of().state, row_of().fence) == ("ending", lease.fence)
    record(lease, 2, cursor={"at": 2})
    assert end(lease)
    with pytest.raises(LeaseLost):
        record(lease, 3)
    assert not end(lease)
    again = taken(service)
    assert again.fence == lease.fence + 2
    assert row_of().cursor == {"at": 2}
    catalogue.disable(making.WATCH, now=NOW, actor="me")
    assert row_of().state == "ending"
    assert end(again)
    assert row_of().state == "unwanted"
    assert making.take(service) == []
    with pytest.raises(catalogue.SensorIsDisabled, match="`sensors enable` starts it"):
        catalogue.restart(making.WATCH, now=NOW, actor="me")
    assert row_of().state == "unwanted"
    catalogue.enable(making.WATCH, now=NOW, actor="me")
    assert row_of().state == "vacant"


def end(lease: Lease) -> bool:
    """As the service says of one that has ended when it was asked to."""
    row = row_of()
    row.fence = lease.fence
    return assigning.ended(row, now=NOW, actor=ACTOR)


def test_who_enables_a_sensor_while_it_ends_has_it_started_again() -> None:
    make_sensor()
    lease = taken(make_service())
    catalogue.disable(making.WATCH, now=NOW, actor="me")
    catalogue.enable(making.WATCH, now=NOW, actor="me")
    assert row_of().state == "ending"
    assert not assignments.fail(lease, "it ended", lived=seconds(1), now=NOW, actor=ACTOR)
    assert end(lease)
    assert row_of().state == "vacant"


def test_sensor_that_its_service_does_not_end_is_freed_all_the_same() -> None:
    make_sensor()
    service = make_service()
    lease = taken(service)
    catalogue.disable(making.WATCH, now=NOW, actor="me")
    for after in (10, 20, 30):
        services.renew(service, now=NOW + seconds(after))
    assert assignments.release_overdue(now=NOW + seconds(34)) == 0
    assert assignments.release_overdue(now=NOW + seconds(36)) == 1
    assert row_of().state == "unwanted"
    with pytest.raises(LeaseLost):
        record(lease, 1)
    assert not Event.objects.filter(type_ref="core.sensor").exists(), "it was not lost"


def test_service_that_stops_leaves_no_sensor_that_is_to_end() -> None:
    make_sensor()
    lease = taken(make_service())
    catalogue.restart(making.WATCH, now=NOW, actor="me")
    assignments.give_up([lease], now=NOW, actor=ACTOR)
    assert row_of().state == "vacant"


def test_sensor_that_backs_off_has_nothing_to_say_and_starts_again_at_once() -> None:
    make_sensor()
    lease = taken(make_service())
    assignments.fail(lease, "it broke", lived=seconds(0), now=NOW, actor=ACTOR)
    catalogue.restart(making.WATCH, now=NOW, actor="me")
    assert (row_of().state, row_of().failures) == ("vacant", 0)


def test_clock_that_was_just_set_takes_no_sensor_away(watch: clock.Watch) -> None:
    make_sensor()
    taken(make_service())
    late = NOW + seconds(3600)
    watch.steady_since = seconds_counted() - 20
    assert assignments.release_overdue(now=late) == 0
    watch.steady_since = seconds_counted() - 30
    assert assignments.release_overdue(now=late) == 1


def test_sensor_whose_process_may_still_run_is_not_taken_again_yet() -> None:
    make_sensor()
    service = make_service()
    busy = [row_of().pk]
    assert not assignments.take(service, fits=lambda sensor: True, busy=busy, now=NOW)
    assert assignments.take(service, fits=lambda sensor: True, now=NOW)


def test_pack_that_is_installed_again_restarts_only_what_has_changed() -> None:
    make_sensor()
    lease = taken(make_service())
    make_sensor()
    assert row_of().state == "starting"
    make_sensor(description="changed")
    assert row_of().state == "ending"
    assert end(lease)
    assert row_of().state == "vacant"
    catalogue.disable(making.WATCH, now=NOW, actor="me")
    make_sensor(description="changed again")
    assert row_of().state == "unwanted", "an operator's word outlives upgrades"


def test_sensors_are_shared_among_services() -> None:
    for number in range(4):
        make_sensor(f"shop{number}.watch")
    first, second = make_service("s1"), make_service("s2")
    assert len(making.take(first)) == 2
    assert len(making.take(second)) == 2


def test_sensor_that_no_other_takes_is_taken_beyond_the_fair_part() -> None:
    for number in range(4):
        make_sensor(f"shop{number}.watch")
    first = make_service("s1")
    make_service("s2")
    making.take(first)
    assert len(making.take(first, now=NOW + seconds(1))) == 0
    assert len(making.take(first, now=NOW + seconds(4))) == 2


def test_wanted_sensor_that_nobody_runs_is_a_warning() -> None:
    make_sensor()
    assert condition.warnings(now=NOW + seconds(20)) == []
    assert condition.warnings(now=NOW + seconds(60)) == [
        "sensor shop.watch: no sensor service lives"
    ]
    make_service(now=NOW + seconds(60))
    assert condition.warnings(now=NOW + seconds(61)) == [
        "sensor shop.watch: no sensor service can run it"
    ]


def test_database_refuses_a_lease_without_a_service() -> None:
    make_sensor()
    with pytest.raises(IntegrityError), transaction.atomic():
        Assignment.objects.update(state="running")
