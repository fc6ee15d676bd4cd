"""Two who change rules at once: what an enabled rule waits for is awake, and both end."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from django.db import connections, transaction

from orchestrator.automation import rules
from orchestrator.automation.models import Timer, Trigger, Watermark
from orchestrator.automation.models.triggers import INVESTIGATION
from orchestrator.automation.trigger_types import EXECUTION
from tests.automation import play
from tests.factories import NOW
from tests.locks import wait_for_waiter

# SQLite has one writer at a time
pytestmark = [
    pytest.mark.usefixtures("database", "sent"),
    pytest.mark.parametrize("database", ["postgresql"], indirect=True),
]


def meanwhile(call: Callable[[], Any]) -> Future[Any]:
    """Begin it in another session; returns when that waits for this one, or is done."""

    def run() -> None:
        try:
            call()
        finally:
            connections.close_all()

    pool = ThreadPoolExecutor(1)
    future = pool.submit(run)
    pool.shutdown(wait=False)
    wait_for_waiter(future.done)
    return future


def is_awake(trigger: Trigger) -> bool:
    timers = Timer.objects.filter(trigger=trigger, next_fire_at__isnull=False)
    return timers.exists() or Watermark.objects.filter(trigger=trigger).exists()


@pytest.mark.parametrize("type_ref", ["core.interval", EXECUTION, INVESTIGATION])
@pytest.mark.parametrize(
    ("first", "second"),
    [("enable", "disable"), ("install", "retire"), ("disable", "enable"), ("retire", "install")],
)
def test_what_one_begins_to_wait_for_is_awake_although_another_stops(
    type_ref: str, first: str, second: str
) -> None:
    parameters = {"every_seconds": 60} if type_ref == "core.interval" else {}
    trigger = play.make_trigger(type_ref, **parameters)
    for ref in ("shop.stops", "shop.begins"):
        play.make_rule(ref, trigger=trigger, parameters={})
    rules.disable("shop.begins", now=NOW)
    changes = {
        "enable": partial(rules.enable, "shop.begins", now=NOW),
        "install": partial(play.make_rule, "shop.new", trigger=trigger, parameters={}),
        "disable": partial(rules.disable, "shop.stops", now=NOW),
        "retire": partial(rules.retire, "shop.stops", now=NOW),
    }
    with transaction.atomic():
        changes[first]()
        other = meanwhile(changes[second])
    other.result(30)
    assert is_awake(trigger)


def test_pack_is_installed_while_an_operator_disables_its_rules() -> None:
    for ref in ("shop.a", "shop.b"):
        play.make_rule(ref)
    with transaction.atomic():
        play.make_rule("shop.a", options={"priority": 1})
        other = meanwhile(partial(rules.disable, "shop.b", now=NOW))
        play.make_rule("shop.b", options={"priority": 1})
    other.result(30)
    rule = rules.find("shop.b")
    assert (rule.is_enabled, rule.current.options) == (False, {"priority": 1})
