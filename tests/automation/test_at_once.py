"""Several processes at once, on both databases: one event, one answer, one execution."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from django.db import IntegrityError, connection, transaction

from orchestrator.automation import enforcing, looking, matching, recording, rules, timers
from orchestrator.automation.models import Enforcement, Event, Suppression, Timer
from orchestrator.automation.recording import NewEvent
from orchestrator.core import clock, retention
from orchestrator.core.models import Execution
from tests.automation import play
from tests.factories import NOW, seconds
from tests.races import at_once

pytestmark = pytest.mark.usefixtures("database", "sent")


def test_one_of_many_reports_makes_the_event() -> None:
    trigger = play.make_trigger()

    def report() -> Any:
        news = [NewEvent(trigger=trigger, key=f"k{n}", source="api") for n in range(20)]
        return recording.record_many(news, now=NOW)

    outcomes = at_once(*[report] * 6)

    assert sum(each.is_new for outcome in outcomes for each in outcome) == 20
    assert Event.objects.count() == 20
    assert len({tuple(each.event_id for each in outcome) for outcome in outcomes}) == 1


def test_one_of_many_matches_makes_the_answers() -> None:
    for name in ("a", "b"):
        play.make_rule(f"shop.{name}")
    ids = play.record(*range(20))
    outcomes = at_once(*[partial(matching.match, ids, now=NOW, actor="executor")] * 6)

    assert sum(outcomes) == 20
    assert Enforcement.objects.count() == 40


def test_many_that_match_the_same_carry_it_out_once() -> None:
    play.make_rule()
    ids = play.record(1, 2)
    outcomes = at_once(*[partial(matching.match, ids, now=NOW, actor="executor")] * 6)

    assert sum(outcomes) == 2
    assert {row.state for row in Enforcement.objects.all()} == {"executed"}
    assert Execution.objects.count() == 2


def test_twenty_that_enforce_the_same_make_one_execution() -> None:
    play.make_rule()
    [row] = play.match(play.record(1))
    outcomes = at_once(*[partial(enforcing.enforce, [row.pk], now=NOW, actor="executor")] * 20)

    assert sum(outcomes) == 1, outcomes
    assert Execution.objects.count() == 1


def test_backstop_answers_beside_no_other_rule_in_batches_that_overlap() -> None:
    play.make_rule("shop.even", criteria={"trigger.number": {"type": "in", "pattern": [0, 2, 4]}})
    play.make_rule("shop.rest", options={"backstop": True})
    ids = play.record(*range(6))
    batches = [ids, ids[::-1], ids[1:4], ids[:3], ids[2:], ids[::2]]
    outcomes = at_once(*[partial(matching.match, b, now=NOW, actor="executor") for b in batches])

    assert sum(outcomes) == 6, outcomes
    answers = Enforcement.objects.values_list("event__payload__number", "rule__ref")
    assert dict(answers) == {n: f"shop.{'rest' if n % 2 else 'even'}" for n in range(6)}
    assert len(answers) == 6


def test_database_refuses_a_second_answer_of_a_rule_and_a_second_event_of_a_key() -> None:
    play.make_rule()
    [row] = play.match(play.record(1))
    second = Enforcement(
        rule_id=row.rule_id, revision_id=row.revision_id, event_id=row.event_id, created_at=NOW
    )
    with pytest.raises(IntegrityError), transaction.atomic():
        second.save()
    event = Event.objects.get()
    event.pk, event.evaluated_at, event.matched = uuid4(), None, None
    with pytest.raises(IntegrityError), transaction.atomic():
        event.save(force_insert=True)


def test_equal_events_of_two_executors_are_answered_once() -> None:
    play.make_rule(options={"suppress": {"seconds": 60}})
    rows = play.match(play.record(*range(50)))
    halves = [[row.pk for row in rows[start::2]] for start in (0, 1)]
    outcomes = at_once(*[partial(enforcing.enforce, h, now=NOW, actor="executor") for h in halves])

    assert sum(outcomes) == 50, outcomes
    assert Execution.objects.count() == 1
    assert Suppression.objects.get().hits == 49


def test_equal_events_are_answered_once_by_a_rule_that_answered_the_same_long_ago() -> None:
    """Then the row of the suppression is there, and nobody waits for its insertion."""
    play.make_rule(options={"suppress": {"seconds": 60}})
    play.answer(99, now=NOW - seconds(3_600))
    rows = play.match(play.record(*range(50)))
    halves = [[row.pk for row in rows[start::2]] for start in (0, 1)]
    outcomes = at_once(*[partial(enforcing.enforce, h, now=NOW, actor="executor") for h in halves])

    assert sum(outcomes) == 50, outcomes
    assert Execution.objects.count() == 2
    assert Suppression.objects.get().hits == 49


def test_timers_that_many_fire_make_one_event_for_each_time() -> None:
    for every in range(5, 25):
        trigger = play.make_trigger("core.interval", every_seconds=every, catch_up="all")
        play.make_rule(f"shop.on{every}", trigger=trigger, parameters={})
    outcomes = at_once(*[partial(timers.fire_due, now=NOW + seconds(60))] * 6)

    assert all(isinstance(each, int) for each in outcomes), outcomes
    assert Event.objects.count() == sum(60 // every for every in range(5, 25))
    assert not Timer.objects.due(NOW + seconds(60)).exists()


def test_what_no_message_reported_is_found_by_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "ENFORCED_AT_ONCE", -1)
    play.make_rule()
    play.record(1, 2)
    late = NOW + seconds(2)
    assert looking.for_events(now=NOW, actor="executor") == 0, "its message is on the way"
    assert looking.for_events(now=late, actor="executor") == 2
    assert looking.for_enforcements(now=late + seconds(2), actor="executor") == 2
    assert Execution.objects.count() == 2


@pytest.mark.parametrize("limit", ["MOST_AT_ONCE", "ENOUGH_EVENTS"])
def test_without_a_sensor_service_more_timers_than_a_batch_has_fire_in_one_look(
    monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(timers, limit, 2)
    for every in range(5, 10):
        trigger = play.make_trigger("core.interval", every_seconds=every)
        play.make_rule(f"shop.on{every}", trigger=trigger, parameters={})
    looking.for_events(now=NOW + seconds(10), actor="executor")
    assert Event.objects.count() == 5


def test_what_was_recorded_by_a_clock_that_was_set_back_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(matching, "ENFORCED_AT_ONCE", -1)
    play.make_rule()
    play.record(1, now=NOW + seconds(3_600))
    assert looking.for_events(now=NOW, actor="executor") == 1
    Enforcement.objects.update(created_at=NOW + seconds(3_600))
    assert looking.for_enforcements(now=NOW, actor="executor") == 1


def test_old_events_go_with_their_answers_once_these_are_over() -> None:
    play.make_rule(options={"suppress": {"seconds": 60}})
    play.answer(1)
    play.match(play.record(2))
    play.record(3)
    later = clock.now() + timedelta(days=31)  # than the ids, which have the time of this test
    removed = retention.prune(now=later)
    assert removed == {"events": 1, "suppressions": 1}
    assert [event.payload["number"] for event in Event.objects.order_by("pk")] == [2, 3]
    assert Enforcement.objects.get().state == "created"


def test_rule_that_is_disabled_in_another_session_does_not_answer_later_events() -> None:
    play.make_rule()
    play.match(play.record(1))
    at_once(partial(rules.disable, "shop.ship", now=NOW))
    assert play.match(play.record(2)) == []


def test_nobody_changes_what_is_over() -> None:
    play.make_rule()
    [row] = play.answer(1)
    events, enforcements = Event.objects.filter(pk=row.event_id), Enforcement.objects.all()
    changes: list[tuple[Any, dict[str, Any]]] = [
        (events, {"sent_by": "bob"}),
        (enforcements, {"fence": 9}),
    ]
    for rows, values in changes:
        with pytest.raises(IntegrityError), transaction.atomic():
            rows.update(**values)
        with pytest.raises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"DELETE FROM {rows.model._meta.db_table}")  # noqa: S608 - ours
