"""Each enabled rule that matches an event answers it once."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.automation import facts, matching, recording, replaying, rulebook, rules
from orchestrator.automation.criteria import Facts, compiling
from orchestrator.automation.models import Enforcement, Event, RuleRevision
from orchestrator.automation.recording import NewEvent
from orchestrator.core import messages
from orchestrator.core.models import DLQEntry
from tests.automation import play
from tests.factories import NOW, seconds

pytestmark = pytest.mark.django_db

LARGE = {"trigger.number": {"type": "gt", "pattern": 100}}
SMALL = {"trigger.number": {"type": "lt", "pattern": 10}}


def answered(*numbers: int) -> list[list[str]]:
    """The rules that matched each of these orders."""
    ids = play.record(*numbers)
    play.match(ids)
    return [
        sorted(row.rule.ref for row in Enforcement.objects.filter(event=id).select_related("rule"))
        for id in ids
    ]


def test_rules_that_match_answer_and_the_event_counts_them() -> None:
    play.make_rule("shop.all")
    play.make_rule("shop.large", criteria=LARGE)
    play.make_rule("shop.other", trigger=play.make_trigger("shop.parcel"))
    ids = play.record(1, 200)
    rows = play.match(ids, now=NOW + seconds(1))

    assert [(row.event_id, row.rule.ref) for row in rows] == [
        (ids[0], "shop.all"), (ids[1], "shop.all"), (ids[1], "shop.large"),
    ]  # fmt: skip
    assert [play.event(id).matched for id in ids] == [1, 2]
    assert play.event(ids[0]).evaluated_at == NOW + seconds(1)


@pytest.mark.parametrize("number", [1, matching.ENFORCED_AT_ONCE])
def test_few_answers_are_carried_out_as_soon_as_they_are_committed(
    number: int, sent: list[messages.Message], django_capture_on_commit_callbacks: Any
) -> None:
    play.make_rule()
    with django_capture_on_commit_callbacks(execute=True):
        rows = play.match(play.record(*range(number)))

    assert [row.state for row in rows] == ["created"] * number
    assert {row.state for row in Enforcement.objects.all()} == {"executed"}
    assert Enforcement.objects.count() == number
    assert "enforcement_ids" not in {name for message in sent for name in message.kwargs}


def test_of_many_answers_all_executors_are_told(
    sent: list[messages.Message], django_capture_on_commit_callbacks: Any
) -> None:
    play.make_rule()
    ids = play.record(*range(matching.ENFORCED_AT_ONCE + 1))
    with django_capture_on_commit_callbacks(execute=True):
        rows = play.match(ids)

    [message] = sent
    assert message.kwargs == {"enforcement_ids": [str(row.pk) for row in rows]}
    assert {row.state for row in Enforcement.objects.all()} == {"created"}


def test_event_is_evaluated_once() -> None:
    play.make_rule("shop.first")
    ids = play.record(1)
    play.match(ids)
    play.make_rule("shop.second")
    assert matching.match(ids, now=NOW, actor="executor") == 0
    assert Enforcement.objects.count() == 1


def test_event_that_nothing_matches_is_evaluated_too() -> None:
    ids = play.record(1)
    assert play.match(ids) == []
    assert play.event(ids[0]).matched == 0


def test_rule_that_was_disabled_before_the_event_does_not_answer() -> None:
    play.make_rule("shop.off")
    play.make_rule("shop.on")
    assert answered(1) == [["shop.off", "shop.on"]]
    rules.disable("shop.off", now=NOW)
    assert answered(2) == [["shop.on"]]
    rules.enable("shop.off", now=NOW)
    assert answered(3) == [["shop.off", "shop.on"]]
    rules.retire("shop.off", now=NOW)
    assert answered(4) == [["shop.on"]]


def test_answer_is_that_of_the_revision_that_was_asked() -> None:
    play.make_rule(criteria=LARGE)
    [first] = play.match(play.record(200))
    play.make_rule(criteria=SMALL)
    [second] = play.match(play.record(5, 300))
    assert (first.revision.number, second.revision.number) == (1, 2)


def test_rules_are_not_asked_about_an_event_that_was_evaluated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The database would refuse what came of it, and the batch would be settled one by one."""
    play.make_rule()
    ids = play.record(1, 2)
    play.match(ids)
    asked: list[object] = []
    monkeypatch.setattr(rulebook, "current", lambda: asked.append(None))
    assert matching.match(ids, now=NOW, actor="executor") == 0
    assert asked == []


def test_backstop_answers_only_what_no_other_rule_does() -> None:
    play.make_rule("shop.any", options={"backstop": True})
    play.make_rule("shop.large", criteria=LARGE)
    assert answered(1, 200) == [["shop.any"], ["shop.large"]]


def test_replay_for_one_rule_asks_no_other() -> None:
    play.make_rule("shop.one")
    rule = play.make_rule("shop.two")
    [id] = play.record(1)
    play.match([id])
    replayed = replaying.replay(id, rule=rule, sent_by="ada", now=NOW)
    [row] = play.match([replayed.event_id])
    assert row.rule == rule


def test_rule_that_breaks_is_rejected_and_the_others_answer() -> None:
    wide = {"trigger.items": {"type": "search", "condition": "any",
                              "pattern": {"item.a": {"type": "eq", "pattern": 1}}}}  # fmt: skip
    broken = play.make_rule("shop.broken", criteria=wide)
    others = [play.make_rule(f"shop.rule{n}", parameters={}) for n in range(9)]
    payload = {"items": [{"a": 2}] * 1_001}
    new = NewEvent(trigger=broken.trigger, payload=payload, source="api")
    [recorded] = recording.record_many([new], now=NOW)
    rows = play.match([recorded.event_id])

    states = {row.rule.ref: (row.state, row.reason) for row in rows}
    assert states.pop("shop.broken") == ("rejected", "payload_too_wide")
    assert states == {rule.ref: ("created", "") for rule in others}
    assert [row.state for row in play.enforce(rows)].count("executed") == 9


def test_criteria_that_are_no_longer_possible_reject_that_rule_alone() -> None:
    rule = play.make_rule("shop.old")
    play.make_rule("shop.fine")
    changed = RuleRevision.objects.create(
        rule=rule, number=2, criteria={"trigger.number": {"type": "like", "pattern": 1}},
        action_ref="core.echo", digest="", made_at=NOW,
    )  # fmt: skip
    rule.revision = changed
    rule.save()
    rules._changed(rule.trigger, now=NOW)

    rows = {row.rule.ref: row for row in play.match(play.record(1))}

    assert (rows["shop.old"].state, rows["shop.old"].reason) == ("rejected", "criteria_failed")
    assert rows["shop.old"].problem is not None
    assert "like" in str(rows["shop.old"].problem)
    assert rows["shop.fine"].state == "created"

    play.match(play.record(2, 3, 4))
    assert not DLQEntry.objects.exists()
    play.match(play.record(5))
    entry = DLQEntry.objects.get()
    assert (entry.dlq_reason, entry.subject_name) == ("rule_failing", "shop.old")
    assert "rejected 5 times in a row: criteria_failed" in entry.detail


def test_fault_of_ours_is_noted_on_its_event_and_the_others_are_evaluated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play.make_rule()

    def fail_for_two(event: Event) -> Facts:
        if event.payload["number"] == 2:
            raise ZeroDivisionError("a fault of ours")
        return facts.facts_of(event)

    monkeypatch.setattr(matching, "facts_of", fail_for_two)
    ids = play.record(1, 2, 3)
    assert len(play.match(ids)) == 2
    assert [play.event(id).matched for id in ids] == [1, 0, 1]
    assert "a fault of ours" in play.event(ids[1]).problem


def test_rules_are_compiled_again_only_when_one_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play.make_rule()
    compiled: list[Any] = []

    def compile_criteria(document: Any) -> Any:
        compiled.append(document)
        return compiling.compile_criteria(document)

    monkeypatch.setattr(rulebook, "compile_criteria", compile_criteria)
    for number in range(3):
        play.match(play.record(number))
    assert len(compiled) == 1
    play.make_rule("shop.second")
    play.match(play.record(9))
    assert len(compiled) == 3
