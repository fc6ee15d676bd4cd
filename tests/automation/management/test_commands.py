"""`manage.py trigger`, `rule`, `event`, `enforcement`: what they show, do and refuse."""

from __future__ import annotations

import io
import json
import sys
from functools import partial

import pytest
from django.core.management import call_command

from orchestrator.automation import asking, rules
from orchestrator.automation.models import Enforcement, Event, Rule
from orchestrator.core import cursors
from orchestrator.core.redaction import REDACTED
from tests import commands, principals
from tests.automation import play
from tests.factories import NOW

pytestmark = pytest.mark.usefixtures("db", "sent")

CRITERIA = {"trigger.number": {"type": "gt", "pattern": 5}}
trigger, rule = commands.of("trigger"), commands.of("rule")
event, enforcement = commands.of("event"), commands.of("enforcement")
answers = partial(commands.items, "enforcement")


def test_triggers_and_their_types_are_listed_and_shown() -> None:
    order, timer = play.make_trigger(), play.make_trigger("core.cron", cron="0 5 * * *")
    assert "shop.order" in trigger.run("types")
    assert {each["type"] for each in trigger.document("list")["items"]} == {
        "shop.order", "core.cron",
    }  # fmt: skip
    assert [each["id"] for each in trigger.document("list", "--type", "shop.order")["items"]] == [
        order.pk
    ]
    assert "number" in trigger.run("show", "shop.order")
    assert "0 5 * * *" in trigger.run("show", str(timer.pk))
    assert trigger.document("show", str(timer.pk))["parameters"] == {"cron": "0 5 * * *"}


def test_next_ticks_of_a_timer_are_those_of_its_schedule() -> None:
    timer = play.make_trigger("core.cron", cron="0 5 * * *")
    lines = trigger.run("next", str(timer.pk), "--count", "3").splitlines()
    assert [line[11:] for line in lines] == ["05:00:00 UTC"] * 3
    assert len(trigger.document("next", str(timer.pk))["items"]) == 10
    assert "is no timer" in trigger.refused("next", str(play.make_trigger().pk))


def test_trigger_is_created_once_and_tried_out_before() -> None:
    play.make_trigger("core.cron", cron="0 6 * * *")
    options = ("core.cron", "--parameters", '{"cron": "0 5 * * *"}')
    assert "can be created" in trigger.run("create", *options, "--dry-run")
    assert "is created" in trigger.run("create", *options)
    assert "is there" in trigger.run("create", *options)
    assert "is there already" in trigger.run("create", *options, "--dry-run")
    assert trigger.document("create", *options)["parameters"] == {"cron": "0 5 * * *"}
    assert "cron" in trigger.refused("create", "core.cron", "--parameters", '{"cron": "x"}')
    assert len(trigger.document("list")["items"]) == 2


def test_rules_are_listed_and_shown_with_their_latest_answers() -> None:
    play.make_rule(criteria=CRITERIA)
    play.answer(7)
    assert "enabled" in rule.run("list")
    assert [each["ref"] for each in rule.document("list", "--pack", "shop")["items"]] == [
        "shop.ship"
    ]
    assert rule.document("list", "--pack", "sho")["items"] == []
    page = rule.run("show", "shop.ship")
    assert "executed" in page
    assert "gt" in page
    assert rule.document("show", "shop.ship")["criteria"] == CRITERIA


def test_rule_that_an_operator_disabled_is_asked_by_no_event() -> None:
    play.make_rule()
    assert rule.run("disable", "shop.ship") == "shop.ship is disabled\n"
    assert play.match(play.record(1)) == []
    assert rule.document("enable", "shop.ship")["enabled_override"] is True
    assert len(play.match(play.record(2))) == 1


def test_rule_is_tested_leaf_by_leaf_and_nothing_is_recorded() -> None:
    play.make_rule(criteria=CRITERIA | {"trigger.state": {"type": "eq", "pattern": "new"}})
    payload = json.dumps({"number": 7, "state": "old"})
    out = io.StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("rule", "test", "shop.ship", "--payload", payload, stdout=out)
    assert ended.value.code == 1
    lines = [line.split()[:3] for line in out.getvalue().splitlines() if "trigger." in line]
    assert lines == [["yes", "trigger.number", "gt"], ["no", "trigger.state", "eq"]]
    assert not Event.objects.exists()


def test_rule_is_tested_with_a_payload_from_standard_input(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play.make_rule(criteria=CRITERIA)
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"number": 7, "password": "hunter2"}'))
    answer = rule.document("test", "shop.ship", "--payload", "-")
    assert (answer["matched"], answer["parameters"]) == (True, {"text": "order 7"})
    assert [(each["value"], each["pattern"]) for each in answer["criteria"]] == [(7, 5)]


def test_rule_that_is_tested_decides_with_secrets_and_shows_none() -> None:
    criteria = {"trigger.password": {"type": "eq", "pattern": "{{ trigger.token }}"}}
    play.make_rule(criteria=criteria, parameters={"text": "{{ trigger.token }}"})
    payload = json.dumps({"password": "hunter2", "token": "hunter2"})
    printed = rule.run("test", "shop.ship", "--payload", payload, "--json")
    assert "hunter2" not in printed
    answer = json.loads(printed)
    assert answer["matched"]
    assert answer["criteria"][0]["value"] == REDACTED


def test_rule_is_tested_with_a_past_event() -> None:
    play.make_rule(criteria=CRITERIA)
    [id] = play.record(7)
    assert rule.document("test", "shop.ship", "--event", str(id))["matched"] is True


def test_rule_that_an_older_release_allowed_says_why_it_cannot_be_asked() -> None:
    row = play.make_rule()
    values = {"criteria": {"trigger.a": {"type": "like"}}, "number": 2, "made_at": NOW}
    row.revision = row.revisions.create(action_ref="core.echo", **values)
    row.save()
    answer = asking.about_payload(rules.find("shop.ship"), {}, seen_by=principals.ROOT, now=NOW)
    outcome = answer.explanation.outcome
    assert (outcome.matched, outcome.reason) == (False, "criteria_failed")
    assert "'like'" in outcome.message


def test_event_is_sent_once_for_each_key(capsys: pytest.CaptureFixture[str]) -> None:
    play.make_trigger()
    sent = ["send", "shop.order", "--payload", '{"number": 1}', "--key", "a"]
    first = event.run(*sent)
    assert event.document(*sent) == {"id": first.strip(), "is_new": False}
    row = Event.objects.get()
    assert (row.payload, row.source, row.dedup_key) == ({"number": 1}, "command", "a")
    assert row.sent_by.startswith("cli:")
    assert row.type_ref in event.run("show", first[:13])
    assert [each["id"] for each in event.document("list", "--open")["items"]] == [str(row.pk)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["shop.ordr"], "No trigger type is called 'shop.ordr', did you mean 'shop.order'?"),
        (["shop.order", "--payload", '{"number": "x"}'], "/payload/number: expected"),
        (["shop.order", "--key", "muster:1"], "/key: keys that begin with 'muster:'"),
        (["core.cron"], "/trigger"),
        (["shop.order", "--parameter", "a=1"], "/trigger: No trigger of the type shop.order has"),
    ],
)
def test_event_is_refused_with_its_reason(arguments: list[str], said: str) -> None:
    play.make_trigger()
    play.make_trigger("core.cron", cron="0 5 * * *")
    assert said in event.refused("send", *arguments)
    assert not Event.objects.exists()


def test_event_is_replayed_for_one_rule() -> None:
    play.make_rule()
    play.make_rule("shop.bill")
    [id] = play.record(7)
    play.match([id])
    again = Event.objects.get(pk=event.run("replay", str(id), "--rule", "shop.bill").strip())
    assert (again.source, again.payload) == ("replay", {"number": 7})
    assert [each.rule.ref for each in play.match([again.pk])] == ["shop.bill"]


def test_event_is_not_replayed_for_a_rule_that_would_not_answer() -> None:
    play.make_rule()
    timer = play.make_trigger("core.interval", every_seconds=60)
    play.make_rule("shop.tick", trigger=timer, parameters={})
    [id] = play.record(7)
    assert "asks events of trigger" in event.refused("replay", str(id), "--rule", "shop.tick")
    rule.run("disable", "shop.ship")
    assert "is disabled" in event.refused("replay", str(id), "--rule", "shop.ship")
    assert "did you mean 'shop.ship'" in event.refused("replay", str(id), "--rule", "shop.shp")
    assert Event.objects.count() == 1


def test_enforcements_are_listed_with_filters_and_shown() -> None:
    play.make_rule()
    [row] = play.answer(7)
    listed = answers("list", "--rule", "shop.ship", "--state", "executed")
    assert [each["id"] for each in listed] == [str(row.pk)]
    assert answers("list", "--event", str(row.event_id))
    assert answers("list", "--state", "rejected") == []
    assert answers("list", "--open") == []
    assert str(row.execution_id) in enforcement.run("show", str(row.pk))
    assert enforcement.document("show", str(row.pk))["execution_id"] == str(row.execution_id)


def test_lists_say_what_they_looked_at_and_whether_nothing_matches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert event.run("list").strip() == "No event."
    assert event.run("list", "--open").strip() == "No event matches."
    assert enforcement.run("list").strip() == "No enforcement."
    assert enforcement.run("list", "--open").strip() == "No enforcement matches."
    monkeypatch.setattr(cursors, "LOOKED_AT_LIMIT", 2)
    first, *_ = play.record(1, 2, 3)
    said, _, cursor = event.run("list", "--key", "order 1").strip().rpartition(" ")
    assert said.splitlines() == ["No event matches.", "Looked at 2. Older ones: --cursor"]
    page = event.document("list", "--key", "order 1", "--cursor", cursor)
    assert [each["id"] for each in page["items"]] == [str(first)]


def test_unknown_rule_is_answered_by_what_was_meant() -> None:
    play.make_rule()
    for verb in ("show", "enable", "disable"):
        assert "did you mean 'shop.ship'?" in rule.refused(verb, "shop.shp")
    assert Rule.objects.get().enabled_override is None
    assert not Enforcement.objects.exists()
