"""What is reported is one event for each trigger and key."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from orchestrator.automation import recording, replaying, trigger_types
from orchestrator.automation.models import Event
from orchestrator.automation.recording import EventsRefused, NewEvent, TooManyEvents
from orchestrator.core import messages, topology
from orchestrator.core.models import DLQEntry
from tests.automation import play
from tests.factories import NOW

pytestmark = pytest.mark.django_db


def new(**values: Any) -> NewEvent:
    known: dict[str, Any] = {"trigger": play.make_trigger(), "source": "api"}
    return NewEvent(**{**known, **values})


def refusals(*news: NewEvent, **options: Any) -> list[tuple[int, str]]:
    with pytest.raises(EventsRefused) as raised:
        recording.record_many(news, now=NOW, **options)
    assert not Event.objects.exists()
    return [(refusal.index, refusal.pointer) for refusal in raised.value.refusals]


def test_events_come_in_the_order_of_their_reports_and_are_announced_together(
    sent: list[messages.Message], django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        ids = play.record(3, 1, 2)

    assert [play.event(id).payload["number"] for id in ids] == [3, 1, 2]
    [message] = sent
    assert (message.task, message.exchange) == ("muster.match", topology.events_exchange())
    assert message.kwargs == {"event_ids": [str(id) for id in ids]}


def test_repeated_key_is_the_event_of_its_first_report(
    sent: list[messages.Message], django_capture_on_commit_callbacks: Any
) -> None:
    first = play.record(1)
    with django_capture_on_commit_callbacks(execute=True):
        again = recording.record_many(
            [new(payload={"number": 5}, key="order 1"), new(key="order 2")], now=NOW
        )

    assert [each.is_new for each in again] == [False, True]
    assert again[0].event_id == first[0]
    assert play.event(first[0]).payload == {"number": 1}
    assert [message.kwargs for message in sent] == [{"event_ids": [str(again[1].event_id)]}]


def test_key_that_comes_twice_in_one_report_is_one_event() -> None:
    both = recording.record_many([new(key="a"), new(key="a")], now=NOW)
    assert [each.is_new for each in both] == [True, False]
    assert both[0].event_id == both[1].event_id
    assert Event.objects.count() == 1


def test_same_key_of_another_trigger_is_another_event() -> None:
    other = play.make_trigger("shop.parcel")
    both = recording.record_many([new(key="a"), new(key="a", trigger=other)], now=NOW)
    assert [each.is_new for each in both] == [True, True]


def test_report_without_a_key_is_always_new() -> None:
    for _ in range(2):
        recording.record_many([new()], now=NOW)
    assert Event.objects.count() == 2


def test_every_problem_is_named_and_nothing_is_recorded() -> None:
    deep: Any = {}
    for _ in range(60):
        deep = {"in": deep}
    found = refusals(
        new(),
        new(payload={"number": "seven"}),
        new(payload={"text": "a\0b"}, key=""),
        new(payload=deep),
        new(key="k" * 201, correlation_id="c" * 101),
    )
    assert [index for index, _ in found] == [1, 2, 2, 3, 4, 4]
    assert (1, "/payload/number") in found
    assert (2, "/key") in found


def test_payload_that_is_too_large_is_refused(settings: Any) -> None:
    settings.MUSTER = replace(settings.MUSTER, event_limit_bytes=100)
    assert refusals(new(payload={"text": "x" * 100})) == [(0, "/payload")]
    recording.record_many([new(payload={"text": "x" * 80})], now=NOW)


def test_nobody_else_reports_what_muster_itself_reports() -> None:
    timer = play.make_trigger("core.interval", every_seconds=5)
    times = {"scheduled_at": "", "fired_at": "", "missed": 0, "timezone": "UTC"}
    assert refusals(new(trigger=timer, payload=times)) == [(0, "/trigger")]
    recording.record_many([new(trigger=timer, payload=times)], now=NOW, by_muster=True)


def test_type_that_left_its_pack_takes_no_events() -> None:
    trigger = play.make_trigger()
    assert trigger.type.pack is not None
    trigger_types.install_types([], pack=trigger.type.pack, now=NOW)
    trigger.type.refresh_from_db()
    assert refusals(NewEvent(trigger=trigger, source="api")) == [(0, "/trigger")]


def test_event_that_ten_rules_led_to_asks_none_and_is_looked_into() -> None:
    play.make_rule()
    ids = play.record(10, depth=10) + play.record(11, depth=11)

    assert len(play.match(ids)) == 1
    too_deep = play.event(ids[1])
    assert (too_deep.problem, too_deep.matched) == ("too_deep", 0)
    entry = DLQEntry.objects.get()
    assert (entry.subject_kind, entry.subject_id) == ("event", too_deep.pk)


def test_executors_that_cannot_keep_up_are_given_no_more(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # what is found here is remembered for a second, and must not be by the next test
    monkeypatch.setattr(recording, "_backlog", recording._Backlog())
    settings.MUSTER = replace(settings.MUSTER, events_backlog_limit=2)
    play.record(1, 2)
    recording._backlog.counted_at = float("-inf")
    recording.require_room()
    play.record(3)
    recording._backlog.counted_at = float("-inf")
    with pytest.raises(TooManyEvents):
        recording.require_room()


def test_replay_is_a_new_event_with_the_same_content() -> None:
    [id] = play.record(7, correlation_id="c")
    replayed = replaying.replay(id, sent_by="ada", now=NOW)
    again = play.event(replayed.event_id)
    assert replayed.is_new
    assert (again.payload, again.correlation_id, again.source) == ({"number": 7}, "c", "replay")


@pytest.mark.parametrize(
    "values",
    [
        {"depth": 12},
        {"evaluated_at": NOW},
        {"matched": 1},
    ],
)
def test_database_refuses_what_no_event_can_be(values: dict[str, Any]) -> None:
    [id] = play.record(1)
    with pytest.raises(IntegrityError), transaction.atomic():
        Event.objects.filter(pk=id).update(**values)
