"""Rules, events, enforcements and triggers in the admin: what they show, to whom, at what cost."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from orchestrator.automation import rules
from orchestrator.automation.models import Event, Rule, RuleRevision, Trigger, TriggerType
from orchestrator.core.models import DLQEntry
from orchestrator.core.redaction import REDACTED
from tests import commands, principals
from tests.automation import play
from tests.automation.hooks import sending
from tests.core.admin.pages import ESCAPED, SCRIPT, page, select
from tests.core.admin.test_weight import LIMIT_BYTES
from tests.factories import NOW, make_action, seconds

pytestmark = pytest.mark.django_db

RULES = "admin:automation_rule_changelist"
BIG = {"trigger.number": {"type": "gt", "pattern": 5}}


def change(client: Client, noun: str, pk: Any) -> str:
    return page(client, f"admin:automation_{noun}_change", pk)


# --- rules ----------------------------------------------------------------------------------------


def test_list_of_rules_says_what_each_answered_last(admin_client: Client) -> None:
    play.make_rule(criteria=BIG)
    play.make_rule("shop.idle", enabled=False)
    play.answer(7)
    html = page(admin_client, RULES)
    assert html.count("executed") == 1
    assert "the installation" in html
    names = [rule.ref for rule in admin_client.get(reverse(RULES)).context["cl"].result_list]
    assert names == ["shop.idle", "shop.ship"]
    for enabled, ref in (("yes", "shop.ship"), ("no", "shop.idle")):
        listed = admin_client.get(reverse(RULES), {"enabled": enabled}).context["cl"].result_list
        assert [rule.ref for rule in listed] == [ref]


def test_page_of_a_rule_shows_what_it_says_and_answered_and_keeps_its_secrets(
    admin_client: Client,
) -> None:
    parameters = {"text": SCRIPT, "password": "hunter2"}
    rule = play.make_rule(criteria=BIG, parameters=parameters, description=SCRIPT)
    [row] = play.match(play.record(7))
    html = change(admin_client, "rule", rule.pk)
    assert ESCAPED in html
    assert "trigger.number" in html
    assert str(row.pk)[:13] in html
    assert SCRIPT not in html
    assert "hunter2" not in html


def post(client: Client, rule: Rule, verb: str, **answers: str) -> Any:
    url = reverse(f"admin:automation_rule_{verb}", args=[rule.pk])
    return client.post(url, {"_form_submitted": "True", **answers})


def test_rule_is_disabled_with_a_reason_and_not_without(admin_client: Client) -> None:
    rule = play.make_rule()
    post(admin_client, rule, "disable", reason="")
    assert rules.find(rule.ref).is_enabled
    post(admin_client, rule, "disable", reason="ships twice")
    assert not rules.find(rule.ref).is_enabled
    html = change(admin_client, "rule", rule.pk)
    assert "Disabled: ships twice" in html
    assert play.match(play.record(1)) == []
    post(admin_client, rule, "enable", reason="mended")
    assert rules.find(rule.ref).is_enabled


def test_selected_rules_are_disabled_after_a_page_that_names_them(admin_client: Client) -> None:
    both = [play.make_rule("shop.a"), play.make_rule("shop.b")]
    html = select(admin_client, RULES, "disable_selected", both)
    assert "shop.a" in html
    assert Rule.objects.enabled().count() == 2
    html = select(
        admin_client,
        RULES,
        "disable_selected",
        both,
        _confirmed="yes",
        _form_submitted="True",
        reason="holidays",
    )
    assert "Disabled: 2 of 2." in html
    assert not Rule.objects.enabled().exists()


def test_retired_rule_can_only_be_tested(admin_client: Client) -> None:
    rule = play.make_rule()
    rules.retire(rule.ref, now=NOW)
    html = change(admin_client, "rule", rule.pk)
    assert reverse("admin:automation_rule_test", args=[rule.pk]) in html
    assert reverse("admin:automation_rule_enable", args=[rule.pk]) not in html


# --- the tester -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "words"), [(7, "holds"), (3, "does not hold")])
def test_tester_answers_leaf_by_leaf_and_records_nothing(
    admin_client: Client, number: int, words: str
) -> None:
    rule = play.make_rule(criteria=BIG)
    url = reverse("admin:automation_rule_test", args=[rule.pk])
    html = admin_client.post(url, {"payload": f'{{"number": {number}}}'}).content.decode()
    assert f">{words}<" in html
    assert f">{number}</code>" in html
    assert not Event.objects.exists()


def test_tester_takes_an_old_event_and_says_what_is_wrong_with_what_it_was_given(
    admin_client: Client,
) -> None:
    rule = play.make_rule(criteria=BIG)
    [id] = play.record(7)
    url = reverse("admin:automation_rule_test", args=[rule.pk])
    assert ">holds<" in admin_client.get(url, {"event": str(id)}).content.decode()
    for given, problem in (
        ({"payload": "{"}, "line 1, column 2"),
        ({"payload": "[" * 100_000}, "50 levels"),
        ({"payload": "[1]"}, "Expected a JSON object"),
        ({"event": str(rule.pk)}, "Enter a valid UUID"),
        ({"event": "0190a6a4-0000-7000-8000-000000000000"}, "There is no such event"),
        ({"event": str(id), "payload": "{}"}, "found both"),
    ):
        assert problem in admin_client.post(url, given).content.decode()


# --- events ---------------------------------------------------------------------------------------


def test_page_of_an_event_says_why_each_rule_did_or_did_not_match(admin_client: Client) -> None:
    play.make_rule("shop.big", criteria=BIG)
    play.make_rule("shop.huge", criteria={"trigger.number": {"type": "gt", "pattern": 70}})
    play.make_rule("shop.rest", options={"backstop": True})
    play.make_rule("shop.off", enabled=False)
    [row] = play.answer(7)
    html = change(admin_client, "event", row.event_id)
    assert html.count(">holds<") == 1
    assert html.count(">does not hold<") == 1
    assert "It is a backstop" in html
    assert "It is not enabled, so it was not asked." in html
    assert html.index("shop.big") < html.index("shop.huge")


def test_an_event_is_explained_by_what_the_rules_said_then(admin_client: Client) -> None:
    play.make_rule(criteria=BIG)
    [id] = play.record(3)
    play.match([id], now=NOW)
    play.make_rule(criteria={}, now=NOW + seconds(60))
    play.make_rule("shop.later", now=NOW + seconds(60))
    html = change(admin_client, "event", id)
    assert "revision 1" in html
    assert ">does not hold<" in html
    assert "revision 2" not in html
    assert "shop.later" not in html


def test_criteria_that_an_older_release_allowed_are_named_and_the_others_shown(
    admin_client: Client,
) -> None:
    rule = play.make_rule("shop.odd")
    play.make_rule(criteria=BIG)
    broken = {"trigger.number": {"type": "resembles", "pattern": 1}}
    rule.revision = RuleRevision.objects.create(
        rule=rule, number=2, criteria=broken, action_ref="core.echo", digest="d", made_at=NOW
    )
    rule.save()
    [id] = play.record(7)
    play.match([id])
    html = change(admin_client, "event", id)
    assert "unknown operator" in html
    assert ">holds<" in html
    url = reverse("admin:automation_rule_test", args=[rule.pk])
    assert "unknown operator" in admin_client.post(url, {"payload": "{}"}).content.decode()


def test_an_event_is_asked_again_of_one_rule(admin_client: Client) -> None:
    rule = play.make_rule()
    play.make_rule("shop.other")
    [id] = play.record(7)
    play.match([id])
    url = reverse("admin:automation_event_replay", args=[id])
    admin_client.post(url, {"_form_submitted": "True", "rule": "shop.unknown"})
    assert Event.objects.count() == 1
    admin_client.post(url, {"_form_submitted": "True", "rule": rule.ref})
    replayed = Event.objects.exclude(pk=id).get()
    assert (replayed.only_rule_id, replayed.source) == (rule.pk, "replay")
    [row] = play.match([replayed.pk])
    assert row.rule_id == rule.pk
    assert "shop.other" not in change(admin_client, "event", replayed.pk)


def test_lists_of_events_are_filtered_and_searched(admin_client: Client) -> None:
    play.make_rule(criteria=BIG)
    big, small = play.record(7, correlation_id="batch"), play.record(3)
    play.match([*big, *small])
    waiting = play.record(9)

    def listed(**query: str) -> list[Any]:
        answer = admin_client.get(reverse("admin:automation_event_changelist"), query)
        return [event.pk for event in answer.context["cl"].result_list]

    assert listed(rules="matched") == big
    assert listed(rules="unmatched") == small
    assert listed(rules="unasked") == waiting
    assert listed(q="batch") == big
    assert listed(q=str(small[0])) == small
    assert listed(type="core.cron") == []
    assert len(listed(type=play.ORDER)) == 3


# --- enforcements and triggers --------------------------------------------------------------------


def test_an_enforcement_leads_to_its_execution_and_back(admin_client: Client) -> None:
    play.make_rule()
    [row] = play.answer(7)
    execution = reverse("admin:orchestrator_execution_change", args=[row.execution_id])
    listing = page(admin_client, "admin:automation_enforcement_changelist")
    detail = change(admin_client, "enforcement", row.pk)
    assert execution in listing
    assert execution in detail
    html = admin_client.get(execution).content.decode()
    assert reverse("admin:automation_rule_change", args=[row.rule_id]) in html
    assert reverse("admin:automation_event_change", args=[row.event_id]) in html


def test_a_rejected_enforcement_says_why(admin_client: Client) -> None:
    play.make_rule(parameters={"text": "{{ trigger.missing.name }}"})
    [row] = play.answer(7)
    query = {"state": "rejected", "rule": str(row.rule_id)}
    html = page(admin_client, "admin:automation_enforcement_changelist", **query)
    assert "parameters_failed" in html
    assert "trigger.missing" in change(admin_client, "enforcement", row.pk)


def test_a_timer_says_when_it_fires_and_what_it_catches_up(admin_client: Client) -> None:
    timer = play.make_trigger("core.interval", every_seconds=10, catch_up="all", max_catch_up=5)
    html = page(admin_client, "admin:automation_trigger_changelist")
    assert "asleep" in html
    play.make_rule("shop.tick", trigger=timer, parameters={})
    html = page(admin_client, "admin:automation_trigger_changelist")
    assert "overdue" in html
    assert "all, at most 5" in html
    html = change(admin_client, "trigger", timer.pk)
    assert "shop.tick" in html
    type = TriggerType.objects.get(ref="core.interval")
    assert "core.interval" in page(admin_client, "admin:automation_triggertype_changelist")
    assert "scheduled_at" in change(admin_client, "triggertype", type.pk)


# --- who sees what --------------------------------------------------------------------------------


def test_viewers_see_pages_without_buttons_and_payloads() -> None:
    rule = play.make_rule(criteria={"trigger.number": {"type": "eq", "pattern": 424242}})
    [row] = play.answer(424242)
    viewer = principals.staff("viewer", principals.given("viewer"))
    html = change(viewer, "event", row.event_id)
    assert 'class="m-button"' not in html
    assert REDACTED in html
    found = html[html.index("criterion by criterion") :]
    assert found.count("424242") == 1, "the pattern, which the rule shows, and not the value"
    assert post(viewer, rule, "disable", reason="x").status_code == 403
    url = reverse("admin:automation_event_replay", args=[row.event_id])
    assert viewer.post(url, {"_form_submitted": "True", "rule": rule.ref}).status_code == 403


def test_rules_and_events_of_other_packs_are_not_there() -> None:
    rule = play.make_rule()
    [row] = play.answer(7)
    other = principals.staff("other", principals.given("operator", packs=["billing"]))
    for noun, pk in (("rule", rule.pk), ("event", row.event_id), ("enforcement", row.pk)):
        url = reverse(f"admin:automation_{noun}_change", args=[pk])
        assert other.get(url).status_code in (302, 403, 404)
        listing = other.get(reverse(f"admin:automation_{noun}_changelist"))
        assert list(listing.context["cl"].result_list) == []
    test = reverse("admin:automation_rule_test", args=[rule.pk])
    assert other.post(test, {"payload": "{}"}).status_code == 403


def test_default_of_a_secret_in_a_type_is_shown_nowhere(admin_client: Client) -> None:
    pin = {"type": "integer", "secret": True, "default": 47114711}
    play.make_type(parameters_schema={"properties": {"pin": pin}})
    row = TriggerType.objects.get(ref=play.ORDER)
    viewer = principals.caller("one", principals.given("viewer"))
    TriggerType.objects.filter(pk=row.pk).update(payload_schema={"properties": {"pin": pin}})
    for shown in (
        change(admin_client, "triggertype", row.pk),
        commands.printed("trigger", "show", row.ref),
        viewer.get("/trigger-types").content.decode(),
    ):
        assert "47114711" not in shown
        assert shown.count(REDACTED) == 2


# --- what they cost -------------------------------------------------------------------------------


def cost(client: Client, name: str, *args: Any) -> tuple[int, int]:
    """Queries, and bytes."""
    page(client, name, *args)
    with CaptureQueriesContext(connection) as queries:
        html = page(client, name, *args)
    return len(queries), len(html.encode())


@pytest.mark.parametrize("noun", ["rule", "event", "enforcement", "trigger"])
def test_lists_of_fifty_take_as_many_queries_as_of_one(admin_client: Client, noun: str) -> None:
    play.make_rule(description="why " * 50)
    play.answer(0)
    listing = f"admin:automation_{noun}_changelist"
    few, _ = cost(admin_client, listing)
    for number in range(1, 50):
        trigger = play.make_trigger(play.ORDER) if number % 2 else None
        play.make_rule(f"shop.rule-{number}", trigger=trigger, description="why " * 50)
        play.make_trigger("core.interval", every_seconds=number)
    play.answer(*range(1, 50))
    many, weight = cost(admin_client, listing)
    assert many <= few + 1, "one more, to count what is more than a page"
    assert weight <= LIMIT_BYTES


def test_page_of_an_event_takes_as_many_queries_for_forty_rules_as_for_two(
    admin_client: Client,
) -> None:
    [play.make_rule(f"shop.a-{number}", criteria=BIG) for number in range(2)]
    [row, _] = play.answer(7)
    few, _ = cost(admin_client, "admin:automation_event_change", row.event_id)
    [play.make_rule(f"shop.b-{number}", criteria=BIG) for number in range(38)]
    row = play.answer(8)[0]
    many, weight = cost(admin_client, "admin:automation_event_change", row.event_id)
    assert many == few
    assert weight <= LIMIT_BYTES
    assert Trigger.objects.count() == 1


# --- webhooks -------------------------------------------------------------------------------------


def test_page_of_a_webhook_and_of_its_trigger_show_what_became_of_deliveries(
    admin_client: Client, settings: Any, tmp_path: Any, sent: Any
) -> None:
    settings.DATA_DIR = tmp_path
    make_action("shop.ship")
    sending.key()
    hook = sending.make_hook()
    sending.send()
    sending.send(headers={"x-hub-signature-256": SCRIPT})
    sending.send(path="nothing")
    for html in (
        change(admin_client, "webhook", hook.pk),
        change(admin_client, "trigger", hook.trigger_id),
    ):
        assert "/api/v1/hooks/github" in html
        assert "shop/hook, shop/hook-next" in html
        assert "signature missing or wrong" in html
        assert "delivery-1" in html
        assert SCRIPT not in html
        assert sending.SECRET not in html
    listed = page(admin_client, "admin:automation_webhook_changelist")
    assert "github" in listed


def test_hook_without_a_secret_leads_from_its_investigation_to_its_page(
    admin_client: Client, settings: Any, tmp_path: Any, sent: Any
) -> None:
    settings.DATA_DIR = tmp_path
    hook = sending.make_hook()
    assert sending.send().status_code == 503
    entry = DLQEntry.objects.get()
    html = page(admin_client, "admin:orchestrator_dlqentry_change", entry.pk)
    assert reverse("admin:automation_webhook_change", args=[hook.pk]) in html
