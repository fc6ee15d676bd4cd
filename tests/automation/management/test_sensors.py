"""`manage.py sensors`."""

from __future__ import annotations

import pytest

from orchestrator.automation.sensors import logs
from tests.automation.sensors import making
from tests.automation.sensors.making import row_of
from tests.commands import document, printed
from tests.factories import NOW

pytestmark = pytest.mark.django_db


def test_sensors_are_listed_and_shown_with_what_happened_to_them() -> None:
    assert "pack install" in printed("sensors", "list")
    making.make_sensor()
    making.taken(making.make_service())
    listed = printed("sensors", "list")
    assert all(word in listed for word in (making.WATCH, "starting", "s1"))
    shown = printed("sensors", "show", making.WATCH)
    assert "take" in shown
    [summary] = document("sensors", "list", "--json")["items"]
    assert summary["state"] == "starting"


def test_log_is_read_from_its_end() -> None:
    logs.append(making.make_sensor(), "one\ntwo\n", now=NOW)
    assert printed("sensors", "log", making.WATCH, "--lines", "1").strip() == "two"


def test_sensor_is_switched_and_restarted() -> None:
    making.make_sensor()
    printed("sensors", "disable", making.WATCH)
    assert row_of().state == "unwanted"
    printed("sensors", "enable", making.WATCH)
    fence = row_of().fence
    printed("sensors", "restart", making.WATCH)
    assert (row_of().state, row_of().fence) == ("vacant", fence + 1)
