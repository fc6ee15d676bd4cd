"""The newest megabyte of what a sensor writes is kept."""

from __future__ import annotations

import pytest

from orchestrator.automation.models import SensorLog
from orchestrator.automation.models.sensors import LOG_BYTES
from orchestrator.automation.sensors import logs
from tests.automation.sensors.making import make_sensor
from tests.factories import NOW

pytestmark = pytest.mark.usefixtures("database")


def test_lines_are_read_in_their_order_the_newest_ones() -> None:
    sensor = make_sensor()
    for number in range(10):
        logs.append(sensor, f"line {number}\n", now=NOW)
    assert SensorLog.objects.count() == 1
    assert logs.read(sensor, lines=3) == ["line 7", "line 8", "line 9"]


def test_log_has_a_limit() -> None:
    sensor = make_sensor()
    for number in range(150):
        logs.append(sensor, f"{number}".rjust(20_000) + "\n", now=NOW)
    kept = sum(len(piece.text) for piece in SensorLog.objects.all())
    assert LOG_BYTES - 40_000 < kept <= LOG_BYTES
    assert logs.read(sensor, lines=1) == ["149".rjust(20_000)]


def test_what_no_database_can_store_is_replaced() -> None:
    sensor = make_sensor()
    logs.append(sensor, "a\0b\n", now=NOW)
    assert logs.read(sensor, lines=1) == ["a\N{REPLACEMENT CHARACTER}b"]
