"""Sensors in the admin: what runs where, and buttons that ask for a reason."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.automation.sensors import logs
from tests.automation.sensors import making
from tests.automation.sensors.making import row_of
from tests.core.admin.pages import page
from tests.factories import NOW

pytestmark = pytest.mark.django_db

SENSORS = "admin:automation_sensor_changelist"


def press(client: Client, sensor: Any, button: str, **values: str) -> None:
    url = reverse(f"admin:automation_sensor_{button}", args=[sensor.pk])
    client.post(url, {"_form_submitted": "True", **values})


def test_list_says_who_runs_each_and_why_it_ended_last(admin_client: Client) -> None:
    making.make_sensor()
    making.taken(making.make_service())
    html = page(admin_client, SENSORS)
    assert all(word in html for word in (making.WATCH, "starting", "s1"))


def test_page_shows_the_cursor_the_log_and_what_happened(admin_client: Client) -> None:
    sensor = making.make_sensor()
    making.record(making.taken(making.make_service()), 1, cursor={"last": 17})
    logs.append(sensor, "cannot <b>read</b>\n", now=NOW)
    html = page(admin_client, "admin:automation_sensor_change", sensor.pk)
    assert "cannot &lt;b&gt;read&lt;/b&gt;" in html
    assert all(word in html for word in ("17", "take", "sensor:s1"))


def test_sensor_is_switched_and_restarted_with_a_reason(admin_client: Client) -> None:
    sensor = making.make_sensor()
    press(admin_client, sensor, "disable", reason="")
    assert row_of().state == "vacant"
    press(admin_client, sensor, "disable", reason="too loud")
    assert row_of().state == "unwanted"
    assert "too loud" in page(admin_client, "admin:automation_sensor_change", sensor.pk)
    press(admin_client, sensor, "enable", reason="mended")
    fence = row_of().fence
    press(admin_client, sensor, "restart", reason="new token")
    assert (row_of().state, row_of().fence) == ("vacant", fence + 1)
