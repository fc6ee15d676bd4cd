"""Events and cursor are recorded together, or not at all."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import OperationalError

from orchestrator.automation import triggers
from orchestrator.automation.models import Event
from orchestrator.automation.recording import NewEvent
from orchestrator.automation.sensors import reports
from orchestrator.automation.sensors.assignments import Lease
from orchestrator.automation.sensors.reports import Report
from tests.automation import play
from tests.automation.sensors.making import make_sensor, make_service, orders, record, row_of, taken
from tests.factories import NOW

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture
def lease(database: str) -> Lease:
    make_sensor()
    return taken(make_service())


def test_events_and_cursor_are_recorded_together(lease: Lease) -> None:
    assert record(lease, 1, 2, 3, cursor={"last": 3}) == []
    row = row_of()
    assert (row.cursor, row.events, row.refused, row.last_event_at) == ({"last": 3}, 3, 0, NOW)
    event = Event.objects.get(dedup_key="2")
    assert (event.source, event.sent_by, event.payload) == (
        "sensor", "sensor:shop.watch", {"number": 2},
    )  # fmt: skip


def test_line_that_comes_again_is_the_same_event(lease: Lease) -> None:
    record(lease, 1, 2)
    record(lease, 2, 3)
    assert Event.objects.count() == 3


def test_fault_of_the_database_leaves_neither_events_nor_cursor(
    lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(news: list[NewEvent], **_: Any) -> None:
        raise OperationalError

    monkeypatch.setattr(reports, "record_accepted", fail)
    with pytest.raises(OperationalError):
        record(lease, 1, cursor={"last": 1})
    assert row_of().cursor == {}
    assert not Event.objects.exists()


def test_refused_event_does_not_keep_the_others_and_the_cursor_from_being_recorded(
    lease: Lease,
) -> None:
    found = [*orders(1), Report(trigger=play.ORDER, payload={"number": "x"}), *orders(2)]
    [text] = reports.record(lease, found, cursor={"last": 2}, now=NOW)
    assert text.startswith("/payload/number")
    assert Event.objects.count() == 2
    assert (row_of().events, row_of().refused, row_of().cursor) == (2, 1, {"last": 2})


@pytest.mark.parametrize("trigger", ["core.execution", "shop.unknown", 999_999])
def test_sensor_reports_only_events_of_types_that_it_declares(
    lease: Lease, trigger: str | int
) -> None:
    [text] = reports.record(lease, [Report(trigger=trigger)], now=NOW)
    assert "which the sensor declares" in text
    assert not Event.objects.exists()


def test_event_of_a_trigger_with_parameters_is_reported_by_its_number(lease: Lease) -> None:
    trigger = triggers.ensure(play.ORDER, {"shop": "north"}, now=NOW)
    assert reports.record(lease, [Report(trigger=trigger.pk, payload={})], now=NOW) == []
    assert Event.objects.get().trigger == trigger


def test_cursor_that_cannot_be_stored_leaves_the_one_before_it(lease: Lease) -> None:
    record(lease, cursor={"last": 1})
    [text] = reports.record(lease, orders(1), cursor={"text": "\0"}, now=NOW)
    assert "the one before it stays" in text
    assert row_of().cursor == {"last": 1}
    assert Event.objects.count() == 1
    [text] = reports.record(lease, [], cursor={"text": "x" * 2_000_000}, now=NOW)
    assert "at most" in text


def test_key_of_muster_itself_is_refused(lease: Lease) -> None:
    [text] = reports.record(lease, [Report(trigger=play.ORDER, key="muster:x")], now=NOW)
    assert "Muster itself" in text
