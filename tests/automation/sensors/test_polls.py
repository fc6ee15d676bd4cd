"""A poll runs while an enabled rule waits for its trigger; its parameters are checked."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.automation import rules, trigger_types, triggers
from orchestrator.automation.models import Sensor
from orchestrator.automation.problems import InvalidDocument
from orchestrator.automation.sensors import catalogue
from orchestrator.automation.sensors.catalogue import SensorIsPoll
from tests.automation import play
from tests.automation.sensors.making import row_of
from tests.factories import NOW

pytestmark = pytest.mark.django_db

URL = "https://example.org/feed"


@pytest.fixture(autouse=True)
def _types(db: None) -> None:
    trigger_types.install_built_in(now=NOW)


def make_poll(type_ref: str = "core.http_poll", **parameters: Any) -> str:
    """A poll that an enabled rule waits for; its sensor's name."""
    trigger = play.make_trigger(type_ref, **(parameters or {"url": URL}))
    play.make_rule(f"shop.on{trigger.pk}", trigger=trigger, parameters={})
    return f"{type_ref}.{trigger.pk}"


def test_poll_runs_while_an_enabled_rule_waits_for_it() -> None:
    ref = make_poll(url=URL, labels={"site": "b"})
    rule = f"shop.on{ref.rpartition('.')[2]}"
    assert row_of(ref).state == "vacant"
    assert row_of(ref).sensor.labels == {"site": "b"}
    rules.disable(rule, now=NOW)
    assert row_of(ref).state == "unwanted"
    rules.enable(rule, now=NOW)
    assert row_of(ref).state == "vacant"
    rules.retire(rule, now=NOW)
    assert row_of(ref).state == "unwanted"


def test_trigger_without_a_rule_has_no_sensor() -> None:
    play.make_trigger("core.http_poll", url=URL)
    assert not Sensor.objects.exists()


def test_poll_is_not_disabled_by_itself() -> None:
    ref = make_poll()
    with pytest.raises(SensorIsPoll):
        catalogue.disable(ref, now=NOW, actor="me")
    catalogue.restart(ref, now=NOW, actor="me")


@pytest.mark.parametrize(
    ("type_ref", "parameters", "place"),
    [
        ("core.http_poll", {}, "parameters"),
        ("core.http_poll", {"url": "ftp://x"}, "parameters.url"),
        ("core.http_poll", {"url": URL, "every_seconds": 0.1}, "parameters.every_seconds"),
        ("core.http_poll", {"url": URL, "items": "a"}, "parameters.items"),
        ("core.http_poll", {"url": URL, "item_key": "{{ other.id }}"}, "parameters.item_key"),
        ("core.http_poll", {"url": URL, "headers": {"a": {"x": 1}}}, "parameters.headers"),
        ("core.http_poll", {"url": URL, "headers": {"a": {"$key": "?"}}}, "parameters.headers"),
        (
            "core.http_poll",
            {"url": URL, "headers": {"a": {"$key": "billing/stripe"}}},
            "parameters.headers",
        ),
        ("core.http_poll", {"url": URL, "headers": {"X Y": "a"}}, "parameters.headers"),
        ("core.http_poll", {"url": URL, "headers": {"a": "\u00e9"}}, "parameters.headers"),
        (
            "core.http_poll",
            {"url": URL, "headers": {"a": {"$text": ["\n", {"$key": "shop/feed"}]}}},
            "parameters.headers",
        ),
        ("core.file", {"path": "relative/*"}, "parameters.path"),
        ("core.file", {"path": "/x", "changes": ["moved"]}, "parameters.changes"),
    ],
)
def test_parameters_that_make_no_poll_are_refused_with_their_place(
    type_ref: str, parameters: dict[str, Any], place: str
) -> None:
    with pytest.raises(InvalidDocument) as refused:
        triggers.ensure(type_ref, parameters, now=NOW)
    assert str(refused.value).startswith(place)
