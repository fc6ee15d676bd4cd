"""Sensors over the API: shown with who runs them, switched, and read by who may."""

from __future__ import annotations

import pytest

from orchestrator.automation.sensors import logs
from tests.automation import play
from tests.automation.sensors import making
from tests.core.api.client import Caller
from tests.factories import NOW

pytestmark = pytest.mark.usefixtures("db", "sent")

WATCH = f"/sensors/{making.WATCH}"


def test_sensor_is_shown_with_its_service_and_how_far_it_has_come(caller: Caller) -> None:
    making.make_sensor(labels={"site": "b"})
    lease = making.taken(making.make_service(labels={"site": "b"}))
    making.record(lease, 1, 2, cursor={"last": 2})
    shown = caller.get(WATCH).json()
    assert shown["state"] == "starting"
    assert (shown["service"], shown["events"], shown["cursor"]) == ("s1", 2, {"last": 2})
    assert shown["labels"] == {"site": "b"}
    assert [each["ref"] for each in caller.get("/sensors").json()["items"]] == [making.WATCH]
    assert caller.get("/sensors?state=running").json()["items"] == []
    assert caller.get("/sensors/shop.none").status_code == 404


def test_sensor_is_disabled_enabled_and_restarted(caller: Caller) -> None:
    making.make_sensor()
    assert caller.post(f"{WATCH}/disable").json()["state"] == "unwanted"
    assert caller.post(f"{WATCH}/disable").json()["is_enabled"] is False
    assert caller.post(f"{WATCH}/enable").json()["state"] == "vacant"
    fence = caller.post(f"{WATCH}/restart").json()["fence"]
    assert caller.post(f"{WATCH}/restart").json()["fence"] == fence + 1


def test_poll_follows_its_rules_and_is_not_disabled(caller: Caller) -> None:
    trigger = play.make_trigger("core.http_poll", url="https://example.org/")
    play.make_rule("shop.polled", trigger=trigger, parameters={})
    answer = caller.post(f"/sensors/core.http_poll.{trigger.pk}/disable")
    assert answer.status_code == 409
    assert answer.json()["type"].endswith("sensor-is-poll")


def test_log_has_the_newest_lines(caller: Caller) -> None:
    sensor = making.make_sensor()
    logs.append(sensor, "one\ntwo\nthree\n", now=NOW)
    assert caller.get(f"{WATCH}/log?lines=2").json() == {"lines": ["two", "three"]}
    assert caller.get(f"{WATCH}/log?lines=0").status_code == 422
