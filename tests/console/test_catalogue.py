"""Catalogue: what can run, what became of it, and advice on its limits."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.core import advice, clock
from orchestrator.core.models import Action, Execution
from tests.console.costs import looking_alone
from tests.factories import make_action, make_execution
from tests.principals import given, staff

Person = Callable[[str], Client]


def page(client: Client, name: str, *args: str, status: int = 200, **query: str) -> str:
    answer = client.get(reverse(f"console:{name}", args=args), query)
    assert answer.status_code == status, answer.content[:300]
    return answer.content.decode()


def ran(action: Action, *seconds: float) -> None:
    """Completed executions that took so long."""
    now = clock.now()
    for each in seconds:
        make_execution("completed", action=action, now=now,
                       started_at=now - timedelta(seconds=each))  # fmt: skip


def test_the_list_has_each_action_with_its_ends_of_the_last_day(
    admin_client: Client, work: None
) -> None:
    make_action("shop.sell", description="Sells <b>it</b>.")
    html = page(admin_client, "catalogue")
    assert "Sells &lt;b&gt;it&lt;/b&gt;." in html
    ends = dict(re.findall(r'href="([^"]+)"><span class="badge \w+">(\d+ \w+)<', html))
    assert sorted(ends.values()) == ["1 completed", "1 failed"]
    for url, text in ends.items():
        rows = admin_client.get(url.replace("&amp;", "&")).content.decode().count('<tr id="x-')
        assert rows == int(text.split()[0])


def test_the_list_is_filtered_by_words_of_name_and_description(admin_client: Client) -> None:
    make_action("shop.sell", description="Sells one thing.")
    make_action("shop.buy", description="Buys one thing.")
    html = page(admin_client, "catalogue", q="shop sells")
    assert "shop.sell" in html
    assert "shop.buy" not in html
    assert "No action has these words" in page(admin_client, "catalogue", q="nothing")


def test_what_is_gone_is_not_listed(admin_client: Client) -> None:
    make_action("shop.old", retired_at=clock.now())
    removed = make_action("gone.away")
    removed.pack.removed_at = clock.now()
    removed.pack.save()
    html = page(admin_client, "catalogue")
    assert "shop.old" not in html
    assert "gone.away" not in html
    assert "retired" in page(admin_client, "action", "shop.old")


def test_an_action_says_how_it_ran_half_of_the_time_and_nearly_always(
    admin_client: Client, action: Action
) -> None:
    ran(action, *[2] * 19, 30)
    make_execution("failed", action=action, now=clock.now(), reason="action_failed")
    make_execution("cancelled", action=action, now=clock.now(), reason="cancelled")
    record = advice.record(advice.newest_runs(action.ref, days=7, now=clock.now()))
    assert (record.looked_at, record.success_rate) == (22, 20 / 21)
    assert record.median_seconds == pytest.approx(2)
    assert record.p95_seconds == pytest.approx(2)
    html = page(admin_client, "action", action.ref)
    assert "95.2% of what ended" in html
    assert "20 completed, 1 failed, 1 cancelled" in " ".join(html.split())
    assert "Of 22 executions of the last 7 days" in html


def test_an_action_that_never_ended_has_no_record_yet(admin_client: Client, action: Action) -> None:
    assert "no end yet" in page(admin_client, "action", action.ref)


def test_a_limit_that_is_out_of_line_is_advised_as_the_command_does(
    admin_client: Client, action: Action
) -> None:
    Action.objects.update(timeout_seconds=60)
    ran(action, 50, 50)
    advised = advice.advise(days=7, now=clock.now())
    (change,) = [c for c in advice.changes(advised[0]) if c.key == "timeout_seconds"]
    html = page(admin_client, "action", action.ref)
    assert "<code>timeout_seconds</code></td><td>60</td><td>120</td>" in html
    assert change.why in html
    assert "Advice" not in page(staff("ann", given("actions.read")), "action", action.ref)


def test_what_an_option_holds_is_not_shown_to_who_may_read_no_payloads(action: Action) -> None:
    options = {"env": {"CARD": "canary-1"}, "headers": {"X": "canary-2"}, "password": "canary-3"}
    Action.objects.update(runtime_options=options)
    for gives in (["actions.read"], ["actions.read", "payloads.read"]):
        html = page(staff(f"who-{len(gives)}", *map(given, gives)), "action", action.ref)
        assert "canary-3" not in html
        assert ("canary-1" in html) == ("payloads.read" in gives)


def test_it_may_be_run_by_who_may_run_it_alone(person: Person, action: Action) -> None:
    run = f"Run {action.ref}"
    assert run in page(person("operator"), "action", action.ref)
    assert run not in page(person("viewer"), "action", action.ref)
    Action.objects.update(enabled=False)
    assert run not in page(person("admin"), "action", action.ref)


def test_who_has_grants_for_one_pack_sees_no_other(work: None) -> None:
    make_action("shop.sell")
    client = staff("ann", given("viewer", packs=["shop"]))
    html = page(client, "catalogue")
    assert "shop.sell" in html
    assert "core.echo" not in html
    assert "No action is called" in page(client, "action", "core.echo", status=404)
    assert "No pack is called" in page(client, "pack", "core", status=404)


def test_who_may_see_no_executions_sees_none_of_an_action(work: None, action: Action) -> None:
    html = page(staff("ann", given("actions.read")), "action", action.ref)
    assert not any(str(each.pk) in html for each in Execution.objects.all())
    assert "Record" not in html


@pytest.mark.parametrize("name", ["catalogue", "action", "pack"])
def test_who_has_no_grant_is_told_the_permission(person: Person, work: None, name: str) -> None:
    args = {"catalogue": [], "action": ["core.echo"], "pack": ["core"]}[name]
    assert "needs the permission actions.read" in page(person(""), name, *args, status=403)


def test_an_action_that_is_not_there_is_said_to_be_none_with_what_was_meant(
    admin_client: Client, action: Action
) -> None:
    html = page(admin_client, "action", "core.ecko", status=404)
    assert "No action is called &#x27;core.ecko&#x27;, did you mean &#x27;core.echo&#x27;" in html


def test_a_pack_has_its_actions_and_releases(admin_client: Client, work: None) -> None:
    html = page(admin_client, "pack", "core")
    assert "core.echo" in html
    assert "None: workers read its code from its folder." in html


@pytest.mark.parametrize("name", ["catalogue", "action", "pack"])
def test_a_page_takes_no_more_queries_than_it_may_however_many_actions_there_are(
    admin_client: Client, work: None, name: str
) -> None:
    for number in range(20):
        make_action(f"shop.a{number}")
    args = {"catalogue": [], "action": ["core.echo"], "pack": ["core"]}[name]
    page(admin_client, name, *args)
    with looking_alone():
        page(admin_client, name, *args)
