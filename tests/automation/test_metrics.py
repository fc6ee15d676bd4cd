"""What automation tells Prometheus: of what waits, and of what was refused."""

from __future__ import annotations

from datetime import datetime

import pytest

from orchestrator.automation import metrics
from orchestrator.automation.models import Event, RuleRevision, Timer
from orchestrator.automation.models.events import SOURCES
from tests.automation import play
from tests.factories import NOW, seconds

pytestmark = pytest.mark.django_db


def values(now: datetime = NOW) -> dict[str, float]:
    """Each number by its name, and its reason if it has one."""
    return {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for family in metrics.families(now)
        for sample in family.samples
    }


def test_nothing_waits_and_everything_is_shown() -> None:
    found = values()
    assert set(found.values()) == {0}
    of_each_sensor = {metrics.SENSOR_EVENTS.name, metrics.SENSOR_RESTARTS.name}
    described = {metric.name for metric in metrics.METRICS} - of_each_sensor
    assert {name.split()[0] for name in found} == described


def test_what_waits_is_counted_with_the_age_of_the_oldest() -> None:
    play.make_rule()
    first = play.record(1)
    play.record(2, now=NOW + seconds(5))
    found = values(NOW + seconds(30))
    assert found["muster_events_unevaluated"] == 2
    assert found["muster_events_oldest_unevaluated_seconds"] == 30
    play.match(first, now=NOW + seconds(10))
    found = values(NOW + seconds(30))
    assert found["muster_events_oldest_unevaluated_seconds"] == 25
    assert found["muster_enforcements_open"] == 1
    assert found["muster_enforcements_oldest_open_seconds"] == 20


def test_each_refusal_is_counted_once_by_its_reason() -> None:
    play.make_rule("shop.odd", parameters={"text": "{{ trigger.missing.name }}"})
    rows = play.answer(1, 2)
    play.enforce(rows)
    found = values()
    assert found["muster_enforcements_rejected_total parameters_failed"] == 2
    assert found["muster_enforcements_rejected_total owner_refused"] == 0


def test_a_rule_whose_criteria_broke_is_counted() -> None:
    play.make_rule(criteria={"trigger.number": {"type": "gt", "pattern": 0}})
    rule = play.make_rule("shop.odd")
    rule.revision = RuleRevision.objects.create(
        rule=rule, number=2, criteria={"x": {"type": "?"}}, digest="d",
        action_ref="core.echo", made_at=NOW,
    )  # fmt: skip
    rule.save()
    play.answer(1)
    assert values()["muster_enforcements_rejected_total criteria_failed"] == 1


def test_a_timer_is_late_from_the_moment_at_which_it_is_due() -> None:
    timer = play.make_trigger("core.interval", every_seconds=10)
    play.make_rule("shop.tick", trigger=timer, parameters={})
    due = Timer.objects.get().next_fire_at
    assert due is not None
    assert values(due - seconds(1))["muster_timers_late_seconds"] == 0
    assert values(due + seconds(7))["muster_timers_late_seconds"] == 7
    assert values()["muster_timers_waiting"] == 1


def test_what_came_in_the_last_minute_is_counted_by_its_source_and_its_state() -> None:
    play.make_rule()
    play.record(1, now=NOW - seconds(61))
    play.enforce(play.match([play.record(2)[0], play.record(3)[0]]))
    found = values(NOW + seconds(30))
    (source,) = {row.source for row in Event.objects.all()}
    assert found[f"muster_events_last_minute {source}"] == 2
    assert sum(found[f"muster_events_last_minute {each}"] for each in SOURCES) == 2
    assert found["muster_enforcements_last_minute executed"] == 2
    assert found["muster_enforcements_last_minute created"] == 0
    assert values(NOW + seconds(61))[f"muster_events_last_minute {source}"] == 0
