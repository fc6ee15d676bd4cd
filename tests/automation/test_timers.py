"""A timer fires once for each of its times, and not while no rule waits for it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from orchestrator.automation import rules, timers
from orchestrator.automation.models import Event, Timer, Trigger
from tests.automation import play
from tests.factories import NOW, seconds

pytestmark = pytest.mark.django_db


def make_timer(type_ref: str = "core.interval", **parameters: Any) -> Trigger:
    """A timer that an enabled rule waits for."""
    known = parameters or {"every_seconds": 10}
    trigger = play.make_trigger(type_ref, **known)
    play.make_rule(f"shop.on{trigger.pk}", trigger=trigger, parameters={})
    return trigger


def fired(trigger: Trigger) -> list[float]:
    """The times of its events, in seconds from now."""
    events = Event.objects.filter(trigger=trigger).order_by("occurred_at")
    return [(event.occurred_at - NOW).total_seconds() for event in events if event.occurred_at]


def next_at(trigger: Trigger) -> datetime | None:
    return Timer.objects.get(trigger=trigger).next_fire_at


def test_each_time_is_an_event_with_its_key() -> None:
    trigger = make_timer()
    for moment in range(0, 35, 5):
        timers.fire_due(now=NOW + seconds(moment))

    assert fired(trigger) == [10, 20, 30]
    assert next_at(trigger) == NOW + seconds(40)
    event = Event.objects.order_by("occurred_at")[0]
    assert event.dedup_key is not None
    assert event.dedup_key.endswith((NOW + seconds(10)).isoformat())
    assert event.payload == {
        "scheduled_at": (NOW + seconds(10)).isoformat(),
        "fired_at": (NOW + seconds(10)).isoformat(),
        "missed": 0,
        "timezone": "UTC",
    }


def test_nothing_is_due_before_its_time() -> None:
    make_timer()
    assert timers.fire_due(now=NOW + seconds(9.9)) == 0
    assert timers.next_due() == NOW + seconds(10)


@pytest.mark.parametrize(
    ("catch_up", "times", "missed"),
    [("last", [40], 3), ("all", [10, 20, 30, 40], 0), ("none", [], 0)],
)
def test_what_was_missed_is_caught_up_as_the_trigger_says(
    catch_up: str, times: list[int], missed: int
) -> None:
    trigger = make_timer(every_seconds=10, catch_up=catch_up, grace_seconds=1)
    timers.fire_due(now=NOW + seconds(45))
    assert fired(trigger) == times
    assert [event.payload["missed"] for event in Event.objects.all()][:1] == [missed][: len(times)]
    timers.fire_due(now=NOW + seconds(50))
    assert fired(trigger) == [*times, 50]


def test_timers_with_much_to_catch_up_leave_the_others_for_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timers, "ENOUGH_EVENTS", 5)
    made = [make_timer(every_seconds=every, catch_up="all") for every in (10, 11, 12)]
    late = NOW + seconds(45)
    assert [timers.fire_due(now=late) for _ in range(3)] == [2, 1, 0]
    assert [len(fired(trigger)) for trigger in made] == [4, 4, 3]


def test_timer_sleeps_while_no_enabled_rule_waits_and_what_was_due_then_does_not_count() -> None:
    trigger = make_timer()
    ref = f"shop.on{trigger.pk}"
    timers.fire_due(now=NOW + seconds(10))
    rules.disable(ref, now=NOW + seconds(11))
    assert next_at(trigger) is None
    assert timers.fire_due(now=NOW + seconds(30)) == 0
    rules.enable(ref, now=NOW + seconds(35))
    assert next_at(trigger) == NOW + seconds(40)
    timers.fire_due(now=NOW + seconds(41))
    assert fired(trigger) == [10, 40]
    assert [event.payload["missed"] for event in Event.objects.all()] == [0, 0]


def test_second_rule_changes_nothing_for_a_timer_that_is_awake() -> None:
    trigger = make_timer()
    play.make_rule("shop.second", trigger=trigger, parameters={}, now=NOW + seconds(5))
    assert next_at(trigger) == NOW + seconds(10)
    rules.disable("shop.second", now=NOW + seconds(6))
    assert next_at(trigger) == NOW + seconds(10)


def test_rule_that_moves_to_another_timer_wakes_that_one_alone() -> None:
    first = make_timer()
    second = play.make_trigger("core.interval", every_seconds=7)
    play.make_rule(f"shop.on{first.pk}", trigger=second, parameters={})
    assert next_at(first) is None
    assert next_at(second) == NOW + seconds(7)


@pytest.mark.parametrize(("catch_up", "times"), [("last", [-3600]), ("none", [])])
def test_date_that_is_past_fires_when_a_rule_first_waits_for_it(
    catch_up: str, times: list[int]
) -> None:
    at = (NOW - timedelta(hours=1)).isoformat()
    trigger = make_timer("core.date", at=at, catch_up=catch_up)
    timers.fire_due(now=NOW)
    assert fired(trigger) == times
    assert next_at(trigger) is None
    ref = f"shop.on{trigger.pk}"
    rules.disable(ref, now=NOW)
    rules.enable(ref, now=NOW)
    timers.fire_due(now=NOW + seconds(1))
    assert fired(trigger) == times


def test_clock_that_was_set_back_fires_nothing_twice() -> None:
    trigger = make_timer()
    timers.fire_due(now=NOW + seconds(30))
    assert timers.fire_due(now=NOW - seconds(60)) == 0
    timers.fire_due(now=NOW + seconds(30))
    timers.fire_due(now=NOW + seconds(40))
    assert fired(trigger) == [30, 40]


def test_timer_goes_on_after_a_clock_that_was_far_ahead() -> None:
    trigger = make_timer()
    timers.fire_due(now=NOW + timedelta(days=400))
    assert timers.bring_forward(now=NOW) == 1
    timers.fire_due(now=NOW)
    assert next_at(trigger) == NOW + seconds(10)
    timers.fire_due(now=NOW + seconds(10))
    assert fired(trigger) == [10, 400 * 86_400]
    assert timers.bring_forward(now=NOW + seconds(10)) == 0


def test_tick_that_somebody_recorded_already_is_no_second_event() -> None:
    trigger = make_timer()
    before = Timer.objects.get(trigger=trigger)
    timers.fire_due(now=NOW + seconds(10))
    before.save()  # as a second process saw it

    assert timers.fire_due(now=NOW + seconds(10)) == 1
    assert fired(trigger) == [10]


def test_timer_whose_parameters_are_no_longer_possible_stops_no_other() -> None:
    broken, fine = make_timer(), make_timer("core.interval", every_seconds=11)
    Trigger.objects.filter(pk=broken.pk).update(parameters={"every_seconds": "x"})
    timers.fire_due(now=NOW + seconds(11))
    assert (fired(broken), fired(fine)) == ([], [11])
    assert next_at(broken) is None
