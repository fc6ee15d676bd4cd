"""Pages of rules, events, schedules and sensors: what they show, to whom, what they cost, and what
may be done there."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django_celery_beat.models import (
    CrontabSchedule,
    IntervalSchedule,
    PeriodicTask,
    PeriodicTasks,
)

from orchestrator.access.models import AuditEvent
from orchestrator.automation import rules, timers, trigger_types
from orchestrator.automation.hooks.deliveries import Outcome
from orchestrator.automation.models import (
    DeliveryCount,
    Enforcement,
    Event,
    Rule,
    Sensor,
    Timer,
    Trigger,
)
from orchestrator.automation.sensors import catalogue, logs
from orchestrator.automation.sensors.catalogue import NewSensor
from orchestrator.automation.trigger_types import NewType
from orchestrator.console.pages.causes import cause_url
from orchestrator.console.paging import FIRST
from orchestrator.core import clock, cursors, schedule
from orchestrator.core.models import Execution, Pack, Tick
from orchestrator.rollups.models import Failure, FailureGroup
from tests.automation import play
from tests.automation.hooks import sending
from tests.console.costs import looking_alone
from tests.console.test_pages import html
from tests.factories import NOW, make_action
from tests.principals import given, staff

Person = Callable[[str], Client]

CANARY = "canary-4f1c9b"
LISTS = ("rules", "enforcements", "events", "schedules", "sensors")
ROLES = ("", "viewer", "author", "operator", "admin")
EVERYBODY = set(ROLES) - {""}


@pytest.fixture
def shop() -> Rule:
    """A rule that ships large orders, another that is disabled, and what they answered."""
    large = {"trigger.number": {"type": "gt", "pattern": 10}}
    rule = play.make_rule("shop.ship", criteria=large)
    play.make_rule("shop.off")
    rules.disable("shop.off", now=NOW)
    play.answer(7, 42)
    return rule


def event_of(number: int) -> Event:
    return Event.objects.get(dedup_key=f"order {number}")


def make_timer() -> Trigger:
    trigger = play.make_trigger("core.cron", cron="0 5 * * *")
    play.make_rule("shop.nightly", trigger=trigger, parameters={"text": "x"})
    return trigger


def reject() -> None:
    """A rule whose parameters have no value answers."""
    play.make_rule("shop.broken", parameters={"text": "{{ trigger.colour }}"})
    [row] = [each for each in play.answer(43) if each.rule.ref == "shop.broken"]
    assert row.state == "rejected"


def post(client: Client, name: str, *args: object, **values: str) -> int:
    return client.post(reverse(f"console:{name}", args=args), values).status_code


def make_sensor(ref: str = "shop.doorbell") -> Sensor:
    play.make_type()
    new = NewSensor(ref=ref, runtime="python", entry_point="bell:Bell", trigger_types=[play.ORDER])
    catalogue.install_all([new], pack=Pack.objects.get(name="shop"), now=NOW)
    return catalogue.find(ref)


def make_periodic(name: str = "nightly", **values: object) -> PeriodicTask:
    every, _ = IntervalSchedule.objects.get_or_create(every=10, period="minutes")
    return PeriodicTask.objects.create(name=name, task="x", **{"interval": every, **values})


# --- what is shown --------------------------------------------------------------------------------


def test_a_past_event_says_criterion_by_criterion_what_held(
    admin_client: Client, shop: Rule
) -> None:
    small = html(admin_client, "rule", "shop.ship", event=str(event_of(7).pk))
    assert "does not match" in small
    assert "does not hold" in small
    assert "<code>trigger.number</code>" in small
    assert "<code>10</code>" in small
    assert "<code>7</code>" in small
    large = html(admin_client, "rule", "shop.ship", event=str(event_of(42).pk))
    assert '<span class="badge success">holds</span>' in large
    assert "order 42" in large  # what its action would be given


def test_a_test_records_nothing(admin_client: Client, shop: Rule) -> None:
    before = Event.objects.count(), Enforcement.objects.count()
    html(admin_client, "rule", "shop.ship", event=str(event_of(42).pk))
    assert (Event.objects.count(), Enforcement.objects.count()) == before


@pytest.mark.parametrize("text", ["nonsense", "00000000-0000-7000-8000-000000000000", "<b>x</b>"])
def test_an_event_that_is_none_is_refused_at_the_field(
    admin_client: Client, shop: Rule, text: str
) -> None:
    page = html(admin_client, "rule", "shop.ship", event=text)
    assert "Expected the id of an event that you may see, found" in page
    assert "<b>x</b>" not in page


def test_the_page_of_an_event_says_why_each_rule_did_or_did_not_answer(
    admin_client: Client, shop: Rule
) -> None:
    page = html(admin_client, "event", event_of(42).pk)
    assert page.index("shop.ship") < page.index("shop.off")  # what has answered comes first
    assert '<span class="badge success">executed</span>' in page
    assert "It is not enabled, so it was not asked." in page
    assert "does not hold" in html(admin_client, "event", event_of(7).pk)


def test_a_rule_is_grey_when_disabled_and_green_when_its_last_answer_worked(
    admin_client: Client, shop: Rule
) -> None:
    page = html(admin_client, "rules")
    assert '<span class="badge success">enabled</span>' in page
    assert '<span class="badge plain">disabled</span>' in page
    reject()
    assert '<span class="badge danger">enabled</span>' in html(admin_client, "rules")


def test_enforcements_say_the_error(admin_client: Client, shop: Rule) -> None:
    reject()
    page = html(admin_client, "enforcements", state="rejected")
    assert page.count('<tr id="e-') == 1
    assert "parameters_failed: " in page
    assert "colour" in page
    assert "Nothing matches" in html(admin_client, "enforcements", rule="shop.off")
    assert "Nothing matches" in html(admin_client, "enforcements", state="wrong")


@pytest.mark.parametrize(
    ("query", "numbers"),
    [
        ({}, {7, 42}),
        ({"source": "api"}, {7, 42}),
        ({"source": "timer"}, set()),
        ({"source": "wrong"}, set()),
        ({"type": "shop.order"}, {7, 42}),
        ({"rules": "matched"}, {42}),
        ({"rules": "unmatched"}, {7}),
        ({"rules": "wrong"}, set()),
        ({"within": "1h"}, set()),  # they are of long ago
        ({"trigger": "0"}, set()),
        ({"trigger": "x"}, set()),
        ({"before": "!"}, {7, 42}),
    ],
)
def test_filters_of_events_find_what_they_say(
    admin_client: Client, shop: Rule, query: dict[str, str], numbers: set[int]
) -> None:
    page = html(admin_client, "events", answer=200, **query)
    found = {number for number in (7, 42) if f'id="v-{event_of(number).pk}"' in page}
    assert found == numbers


@pytest.mark.parametrize("filters", ["source=api", "within=1h&rules=matched", "rules=unmatched"])
def test_no_filter_of_events_reads_the_whole_table(
    admin_client: Client, shop: Rule, filters: str
) -> None:
    with CaptureQueriesContext(connection) as asked:
        assert admin_client.get(f"{reverse('console:events')}?{filters}").status_code == 200
    table = f'FROM "{Event._meta.db_table}"'
    read = [each["sql"] for each in asked if table in each["sql"]]
    assert read
    assert all("LIMIT" in statement for statement in read), read


def test_a_list_of_events_that_is_read_counts_what_is_newer(
    admin_client: Client, shop: Rule
) -> None:
    first = Event.objects.order_by("-pk")[1]
    answer = admin_client.get(
        reverse("console:events"), headers={"X-Live": "1", FIRST: str(first.pk)}
    )
    assert "1 newer" in answer.content.decode()


def test_a_filtered_list_that_is_read_keeps_its_rows_however_many_are_newer(
    admin_client: Client, shop: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursors, "LOOKED_AT_LIMIT", 2)
    first = Event.objects.order_by("-pk")[0]
    play.record(*range(100, 106))
    answer = admin_client.get(
        reverse("console:events") + "?source=api", headers={"X-Live": "1", FIRST: str(first.pk)}
    )
    page = answer.content.decode()
    assert all(f'id="v-{event_of(number).pk}"' in page for number in (7, 42))
    assert "2 newer" in page, "as many as are looked at"


def test_older_events_are_behind_the_cursor(admin_client: Client) -> None:
    play.record(*range(1, 61))
    page = html(admin_client, "events")
    assert page.count('<tr id="v-') == 50
    older = page.rpartition('href="?before=')[2].partition('"')[0]
    assert html(admin_client, "events", before=older).count('<tr id="v-') == 10


def test_a_timer_shows_its_next_three_moments_and_its_last_results(admin_client: Client) -> None:
    trigger = make_timer()
    timers.fire_due(now=NOW + timedelta(days=1))
    play.enforce(play.match([Event.objects.get().pk]))
    page = html(admin_client, "schedules")
    row = page.partition(f'<tr id="t-{trigger.pk}"')[2].partition("</tr>")[0]
    assert len(re.findall(r"\b05:00", row)) == 3
    assert "shop.nightly" in row
    one = html(admin_client, "trigger", trigger.pk)
    assert "Last events" in one
    assert '<span class="badge plain">requested</span> shop.nightly' in one
    assert "No trigger has the id 999" in html(admin_client, "trigger", 999, answer=404)


def test_the_schedule_says_when_it_runs_next_and_what_is_late(admin_client: Client) -> None:
    schedule.install(using="default")
    now = clock.now()
    Tick.objects.filter(name="muster.check_timeouts").update(ran_at=now - timedelta(minutes=5))
    page = html(admin_client, "schedules")
    task = PeriodicTask.objects.get(name="muster.check_timeouts")
    row = page.partition(f'<tr id="p-{task.pk}"')[2].partition("</tr>")[0]
    assert '<span class="badge danger">late</span>' in row
    assert "5 min ago" in row


def test_the_next_moments_of_a_row_of_the_schedule_are_those_of_beat() -> None:
    last = NOW - timedelta(minutes=4)
    row = make_periodic()
    every = timedelta(minutes=10)
    expected = [last + every * number for number in (1, 2, 3)]
    assert schedule.next_times(row, 3, last=last, now=NOW) == expected
    assert schedule.next_times(row, 1, last=NOW - timedelta(days=1), now=NOW) == [NOW]
    row.expires = last + every * 2
    assert schedule.next_times(row, 3, last=last, now=NOW) == expected[:1]
    row.enabled = False
    assert schedule.next_times(row, 3, last=last, now=NOW) == []
    crontab = CrontabSchedule.objects.create(minute="30", hour="4", timezone="UTC")
    daily = make_periodic("daily", interval=None, crontab=crontab)
    found = schedule.next_times(daily, 3, last=None, now=NOW)
    assert [f"{each:%H:%M}" for each in found] == ["04:30"] * 3
    assert found == sorted(set(found))
    assert found[0] > NOW
    assert found[2] - found[0] == timedelta(days=2)


def test_a_sensor_shows_who_runs_it_and_its_log(admin_client: Client, person: Person) -> None:
    sensor = make_sensor()
    logs.append(sensor, "the bell has no battery\n", now=NOW)
    assert "shop.doorbell" in html(admin_client, "sensors")
    page = html(admin_client, "sensor", "shop.doorbell")
    assert "the bell has no battery" in page
    assert "vacant" in page
    assert "No sensor is called" in html(admin_client, "sensor", "shop.none", answer=404)
    assert "No webhook has the path" in html(admin_client, "hook", "a/b", answer=404)


def test_a_webhook_shows_its_deliveries_and_names_its_secrets(admin_client: Client) -> None:
    make_action("shop.ship")
    hook = sending.make_hook()
    for outcome, total in ((Outcome.ACCEPTED, 3), (Outcome.UNSIGNED, 2)):
        DeliveryCount.objects.create(webhook=hook, outcome=outcome, total=total, last_at=NOW)
    page = html(admin_client, "sensors")
    row = page.partition(f'<tr id="k-{hook.pk}"')[2].partition("</tr>")[0]
    assert "<td>3</td>" in row
    assert '<span class="badge warning">2</span>' in row
    one = html(admin_client, "hook", hook.path)
    assert "refused: signature missing or wrong" in one
    assert "shop/hook" in one
    assert sending.SECRET not in page + one


# --- what it costs --------------------------------------------------------------------------------


def busy_pages(shop: Rule) -> list[tuple[str, list[object], dict[str, str]]]:
    """Every page with many rows."""
    trigger = shop.trigger
    for number in range(30):
        play.make_rule(f"shop.rule{number}", trigger=trigger)
        play.make_rule(
            f"shop.timer{number}",
            trigger=play.make_trigger("core.cron", cron=f"{number} 5 * * *"),
            parameters={"text": "x"},
        )
    play.answer(*range(100, 130), trigger=trigger)
    make_sensor()
    schedule.install(using="default")
    event = event_of(129)
    return [
        *((name, [], {}) for name in LISTS),
        ("rule", ["shop.ship"], {"event": str(event.pk)}),
        ("event", [event.pk], {}),
        ("trigger", [trigger.pk], {}),
        ("sensor", ["shop.doorbell"], {}),
        ("hook", [sending.make_hook().path], {}),
    ]


def test_no_page_takes_more_queries_or_bytes_than_it_may(admin_client: Client, shop: Rule) -> None:
    for name, args, query in busy_pages(shop):
        html(admin_client, name, *args, answer=200, **query)
        with looking_alone():
            page = html(admin_client, name, *args, answer=200, **query)
        if name in ("rules", "events", "enforcements"):
            assert len(page) <= 60_000, name


# --- to whom --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LISTS)
def test_who_has_no_grant_is_told_the_permission(person: Person, shop: Rule, name: str) -> None:
    assert "needs the permission" in html(person(""), name, answer=403)


def test_what_is_marked_as_secret_is_on_no_page(admin_client: Client) -> None:
    play.make_rule(
        criteria={"trigger.pin": {"type": "neq", "pattern": "0000"}},
        parameters={"text": "{{ trigger.pin }}", "password": CANARY},
    )
    [row] = play.enforce(play.match(play.record_payloads({"pin": CANARY})))
    schema = {"type": "object", "properties": {"pin": {"type": "string", "secret": True}}}
    new = NewType(ref=play.ORDER, payload_schema=schema)
    trigger_types.install_types([new], pack=Pack.objects.get(name="shop"), now=NOW)
    pages = [
        html(admin_client, "rule", "shop.ship", event=str(row.event_id)),
        html(admin_client, "event", row.event_id),
        *(html(admin_client, name) for name in LISTS),
    ]
    for page in pages:
        assert CANARY not in page
    assert "***" in pages[0]


def test_payloads_are_for_who_may_read_payloads(shop: Rule) -> None:
    client = staff("eve", given("events.read"), given("rules.read"))
    page = html(client, "event", event_of(42).pk)
    assert "***" in page
    assert "<code>42</code>" not in page


def test_what_failed_leads_to_the_others_of_its_cause(admin_client: Client, shop: Rule) -> None:
    event = event_of(42)
    failed = Enforcement.objects.get(event=event, rule=shop).execution
    assert failed is not None
    assert "others of its cause" not in html(admin_client, "event", event.pk)
    Execution.objects.filter(pk=failed.pk).update(
        status="failed", reason="deadline_exceeded", ended_at=NOW
    )
    group = FailureGroup.objects.create(
        digest="d", action_ref=failed.action_ref, first=NOW, last=NOW, count=1
    )
    Failure.objects.create(execution_id=failed.pk, group=group, at=NOW)
    page = html(admin_client, "event", event.pk)
    assert f'<a href="{cause_url(group.pk)}">others of its cause</a>' in page


# --- acts -----------------------------------------------------------------------------------------

MAY = {
    "rule_act": {"author", "operator", "admin"},
    "sensor_act": {"author", "operator", "admin"},
    "replay": {"author", "operator", "admin"},
    "periodic_act": {"admin"},
    "timer_act": {"author", "operator", "admin"},
}


@pytest.mark.parametrize("role", ROLES)
def test_acts_are_drawn_for_who_may_do_them_and_refused_to_others(
    person: Person, shop: Rule, role: str
) -> None:
    make_sensor()
    task, event, timer = make_periodic(), event_of(42), make_timer()
    client = person(role)
    acts = {
        "replay": ("event", event.pk, {"rule": "shop.ship"}, 'id="replay"'),
        "rule_act": ("rule", "shop.ship", {"act": "disable"}, 'id="disable"'),
        "sensor_act": ("sensor", "shop.doorbell", {"act": "restart"}, 'id="restart"'),
        "periodic_act": ("schedules", task.pk, {"act": "pause"}, f'id="pause-{task.pk}"'),
        "timer_act": ("schedules", timer.pk, {"act": "run"}, f'id="run-{timer.pk}"'),
    }
    for name, (page, key, values, dialog) in acts.items():
        is_allowed = role in MAY[name]
        args = [] if page == "schedules" else [key]
        drawn = client.get(reverse(f"console:{page}", args=args)).content.decode()
        assert (f"<dialog {dialog}" in drawn) == is_allowed, name
        expected = 302 if is_allowed else 403
        assert post(client, name, key, reason="new shop", **values) == expected, name
    shop.refresh_from_db()
    task.refresh_from_db()
    assert shop.is_enabled == (role not in MAY["rule_act"])
    assert task.enabled == (role not in MAY["periodic_act"])
    assert timer.events.exists() == (role in MAY["timer_act"])


def test_a_rule_is_disabled_with_a_reason_that_its_page_keeps(
    admin_client: Client, shop: Rule
) -> None:
    post(admin_client, "rule_act", "shop.ship", act="disable", reason="  ")
    shop.refresh_from_db()
    assert shop.is_enabled
    post(admin_client, "rule_act", "shop.ship", act="disable", reason="stock is counted")
    page = html(admin_client, "rule", "shop.ship")
    assert "Disabled: stock is counted" in page
    assert '<span class="badge plain">disabled</span>' in page
    assert LogEntry.objects.get().object_id == str(shop.pk)
    audited = AuditEvent.objects.get(permission="admin.rule")
    assert (audited.actor, audited.reason) == (
        "user:admin", "shop.ship: Disabled: stock is counted",
    )  # fmt: skip


def test_an_act_that_is_not_known_changes_nothing(admin_client: Client, shop: Rule) -> None:
    assert post(admin_client, "rule_act", "shop.ship", act="explode", reason="x") == 404
    assert post(admin_client, "rule_act", "shop.none", act="disable", reason="x") == 404
    assert post(admin_client, "sensor_act", "shop.none", act="disable", reason="x") == 404
    assert post(admin_client, "periodic_act", 999, act="pause", reason="x") == 404
    assert admin_client.get(reverse("console:rule_act", args=["shop.ship"])).status_code == 405
    assert not LogEntry.objects.exists()


def test_an_event_is_replayed_for_one_rule_with_a_reason(admin_client: Client, shop: Rule) -> None:
    event = event_of(42)
    before = Event.objects.count()
    post(admin_client, "replay", event.pk, rule="shop.ship")
    assert Event.objects.count() == before
    post(admin_client, "replay", event.pk, rule="shop.ship", reason="it was lost")
    new = Event.objects.get(source="replay")
    assert (new.only_rule, new.payload, new.sent_by) == (shop, event.payload, "user:admin")
    assert f"by the event {new.pk}: it was lost" in html(admin_client, "event", event.pk)


def token_in(page: str) -> str:
    return page.partition('name="token" value="')[2].partition('"')[0]


def test_a_form_that_is_sent_twice_makes_one_event(admin_client: Client, shop: Rule) -> None:
    event, timer = event_of(42), make_timer()
    replay = {"rule": "shop.ship", "token": token_in(html(admin_client, "event", event.pk))}
    run = {"act": "run", "token": token_in(html(admin_client, "schedules"))}
    for _ in range(2):
        post(admin_client, "replay", event.pk, reason="x", **replay)
        post(admin_client, "timer_act", timer.pk, reason="x", **run)
    assert Event.objects.filter(source="replay").count() == 1
    assert timer.events.count() == 1
    post(admin_client, "timer_act", timer.pk, reason="x", act="run", token="another")
    assert timer.events.count() == 2


def test_one_dialog_asks_any_of_the_rules_again(admin_client: Client, shop: Rule) -> None:
    more = play.make_rule("shop.more", trigger=shop.trigger)
    event = event_of(42)
    page = html(admin_client, "event", event.pk)
    assert page.count("<dialog id=") == html(admin_client, "events").count("<dialog id=") + 1
    picked = re.findall(r'data-opens="replay" data-picks="([^"]*)"', page)
    assert sorted(picked) == ["", "shop.more", "shop.ship"]
    select = page.partition('name="rule">')[2].partition("</select>")[0]
    offered = re.findall(r'<option(?: value="")?>([^<]*)<', select)
    assert sorted(offered) == ["every rule of its trigger", "shop.more", "shop.ship"]
    token = token_in(page)
    for ref in ("shop.ship", "shop.more", "shop.ship"):
        post(admin_client, "replay", event.pk, rule=ref, reason="x", token=token)
    asked = Event.objects.filter(source="replay").order_by("pk").values_list("only_rule", flat=True)
    assert list(asked) == [shop.pk, more.pk]


def test_a_rule_that_one_may_not_see_is_not_asked(shop: Rule) -> None:
    client = staff("eve", given("events.read"), given("events.send"))
    assert post(client, "replay", event_of(42).pk, rule="shop.ship", reason="x") == 404
    assert not Event.objects.filter(source="replay").exists()


def test_a_disabled_rule_is_not_asked_again_and_the_page_says_why(
    admin_client: Client, shop: Rule
) -> None:
    event = event_of(42)
    url = reverse("console:event", args=[event.pk])
    values = {"rule": "shop.off", "reason": "x", "back": url}
    answer = admin_client.post(reverse("console:replay", args=[event.pk]), values, follow=True)
    assert "The rule shop.off is disabled: enable it first, or test it" in answer.content.decode()
    assert not Event.objects.filter(source="replay").exists()


def test_a_row_of_the_schedule_is_paused_and_goes_on(admin_client: Client) -> None:
    task = make_periodic()
    changed = PeriodicTasks.last_change()
    post(admin_client, "periodic_act", task.pk, act="pause", reason="the disk is full")
    task.refresh_from_db()
    assert not task.enabled
    assert PeriodicTasks.last_change() != changed  # beat reads it again
    assert LogEntry.objects.get().get_change_message() == "Paused: the disk is full"
    post(admin_client, "periodic_act", task.pk, act="resume", reason="it has room")
    task.refresh_from_db()
    assert task.enabled


def test_a_timer_is_run_by_hand_with_a_reason_and_keeps_its_times(admin_client: Client) -> None:
    trigger = make_timer()
    due = Timer.objects.get(trigger=trigger).next_fire_at
    assert post(admin_client, "timer_act", trigger.pk, act="run", reason=" ") == 302
    assert not trigger.events.exists()
    post(admin_client, "timer_act", trigger.pk, act="run", reason="the night was skipped")
    event = trigger.events.get()
    assert (event.source, event.sent_by, event.dedup_key) == ("timer", "user:admin", None)
    assert set(event.payload) == {"scheduled_at", "fired_at", "missed", "timezone"}
    [row] = play.enforce(play.match([event.pk]))
    assert row.rule.ref == "shop.nightly"
    assert Timer.objects.get(trigger=trigger).next_fire_at == due
    assert "Run by hand: the night was skipped" in html(admin_client, "trigger", trigger.pk)


def test_a_timer_without_an_enabled_rule_is_not_run(admin_client: Client) -> None:
    trigger = make_timer()
    rules.disable("shop.nightly", now=NOW)
    url = reverse("console:timer_act", args=[trigger.pk])
    values = {"act": "run", "reason": "x", "back": reverse("console:schedules")}
    answer = admin_client.post(url, values, follow=True).content.decode()
    assert f"No enabled rule waits for {trigger}" in answer
    assert not trigger.events.exists()
    assert not LogEntry.objects.exists()


def test_who_may_not_send_events_is_named_the_permission(shop: Rule) -> None:
    timer = make_timer()
    client = staff("eve", given("triggers.read"))
    url = reverse("console:timer_act", args=[timer.pk])
    answer = client.post(url, {"act": "run", "reason": "x"})
    assert answer.status_code == 403
    assert "events.send" in answer.content.decode()
    assert post(client, "timer_act", 999, act="run", reason="x") == 404
    other = event_of(42).trigger_id  # of orders, no timer
    assert post(client, "timer_act", other, act="run", reason="x") == 404


def test_the_palette_finds_rules_and_what_may_be_done_to_them(
    admin_client: Client, person: Person, shop: Rule
) -> None:
    def found(client: Client, words: str) -> list[str]:
        answer = client.get(reverse("console:palette"), {"q": words}).json()
        return [item["text"] for item in answer["items"]]

    assert found(admin_client, "disable shop.ship") == ["Disable shop.ship …"]
    assert found(admin_client, "enable shop.off") == ["Enable shop.off …"]
    assert found(person("viewer"), "shop.ship") == ["Rule shop.ship"]
    assert found(person(""), "shop.ship") == []
