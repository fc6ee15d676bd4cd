"""The pages of policies and of access: use, who waits, names of keys, grants, the audit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from orchestrator.access import audit, keys
from orchestrator.access.models import Key
from orchestrator.core import clock
from orchestrator.core.models import Worker
from orchestrator.policies.models import Policy, PolicySlot
from tests.console.costs import looking_alone
from tests.console.test_pages import html
from tests.factories import NOW, make_action, make_execution, make_worker
from tests.policies import play
from tests.principals import ROOT, given, staff

Person = Callable[[str], Client]
CANARY = "canary-e2c7d0-value"
PAGES = ("access", "identities", "keys", "audit")
NEEDS = {
    "identities": {"admin"},
    "keys": {"operator", "author", "admin"},
    "audit": {"admin"},
    "policies": {"viewer", "operator", "author", "admin"},
}


@pytest.fixture
def key(settings: Any, tmp_path: Path) -> Key:
    settings.DATA_DIR = tmp_path
    make_action("shop.pay")
    new = keys.NewKey(reference=keys.Reference.read("shop/stripe", user=""), value=CANARY)
    return keys.create(new, by=ROOT, now=clock.now())


@pytest.fixture
def limit() -> Policy:
    """A limit of one at once: one runs, two wait."""
    policy = play.make_policy("one-at-once", limit=1)
    make_worker(now=NOW, capacity=4)
    play.waiting(3, now=NOW)
    play.look()
    return policy


def test_a_policy_shows_its_use_and_who_waits(admin_client: Client, limit: Policy) -> None:
    row = html(admin_client, "policies").partition('<tr id="policy-1"')[2].partition("</tr>")[0]
    assert "one-at-once" in row
    assert "100 %</meter> 1" in row
    assert '<span class="badge warning">2</span>' in row
    page = html(admin_client, "policy", "one-at-once")
    assert page.count('<tr id="w-') == 2
    assert "No policy is called" in html(admin_client, "policy", "none", answer=404)


def test_what_is_held_of_a_policy_is_counted_a_little_beyond_its_limit(
    admin_client: Client, limit: Policy
) -> None:
    bucket = limit.buckets.get()
    for _ in range(3):
        running = make_execution("running", worker=Worker.objects.get())
        PolicySlot.objects.create(bucket=bucket, execution=running, taken_at=NOW)
    assert "100 %</meter> more than 1<" in html(admin_client, "policies")


@pytest.mark.parametrize("role", ["", "viewer", "author", "operator", "admin"])
def test_a_policy_is_disabled_by_who_may_with_a_reason(
    person: Person, limit: Policy, role: str
) -> None:
    client = person(role)
    url = reverse("console:policy_act", args=["one-at-once"])
    may = role in ("operator", "admin")
    drawn = client.get(reverse("console:policy", args=["one-at-once"])).content.decode()
    assert ('<dialog id="disable"' in drawn) == may
    client.post(url, {"act": "disable", "reason": ""})
    assert Policy.objects.get().enabled
    answer = client.post(url, {"act": "disable", "reason": "the sale is over"})
    assert answer.status_code == (302 if may else 403)
    assert Policy.objects.get().enabled != may
    if may:
        assert "Disabled: the sale is over" in html(client, "policy", "one-at-once")


@pytest.mark.parametrize("role", ["", "viewer", "author", "operator", "admin"])
@pytest.mark.parametrize("name", NEEDS)
def test_each_page_is_for_who_may_see_it(person: Person, name: str, role: str) -> None:
    client, may = person(role), role in NEEDS[name]
    page = html(client, name, answer=200 if may else 403)
    assert may or "needs the permission" in page
    if name != "policies":
        own = html(client, "access")
        assert (reverse(f"console:{name}") in own) == may


def test_what_one_may_do_oneself_is_for_everybody(person: Person) -> None:
    page = html(person("viewer"), "access")
    row = page.partition("<code>executions.read</code>")[2].partition("</tr>")[0]
    assert '<span class="badge success">yes</span>' in row
    row = page.partition("<code>keys.manage</code>")[2].partition("</tr>")[0]
    assert '<span class="badge success">yes</span>' not in row


def test_keys_are_listed_by_name_and_no_page_shows_a_value(admin_client: Client, key: Key) -> None:
    assert "shop/stripe" in html(admin_client, "keys")
    for name in PAGES:
        with CaptureQueriesContext(connection) as queries:
            assert CANARY not in html(admin_client, name)
        assert not any('"access_key"."content"' in each["sql"] for each in queries)


def test_keys_beyond_reach_are_not_listed(key: Key) -> None:
    client = staff("eve", given("keys.read", packs=["billing"]))
    assert "shop/stripe" not in html(client, "keys")


def test_identities_say_what_they_may(admin_client: Client) -> None:
    staff("bob", given("operator", packs=["shop"]))
    page = html(admin_client, "identities")
    assert "user:bob" in page
    assert "operator in pack shop" in page


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({}, {"cancel", "run"}),
        ({"actor": "user:ada"}, {"cancel"}),
        ({"actor": "user:nobody"}, set()),
        ({"permission": "executions.run"}, {"run"}),
        ({"decision": "denied"}, {"run"}),
        ({"within": "15m"}, {"cancel", "run"}),
        ({"object_id": "7"}, {"cancel"}),
        ({"within": "wrong"}, {"cancel", "run"}),
        ({"before": "!"}, {"cancel", "run"}),
    ],
)
def test_filters_of_the_audit_find_what_they_say(
    admin_client: Client, query: dict[str, str], found: set[str]
) -> None:
    audit.record("executions.cancel", actor=audit.Actor("user", "user:ada"), object_id="7")
    audit.record(
        "executions.run", actor=audit.Actor("user", "user:bob"), decision=audit.Decision.DENIED
    )
    page = html(admin_client, "audit", answer=200, **query)
    assert {each for each in ("cancel", "run") if f"<td>executions.{each}</td>" in page} == found


def test_no_page_takes_more_queries_or_bytes_than_it_may(
    admin_client: Client, key: Key, limit: Policy
) -> None:
    for number in range(55):
        staff(f"p{number}", given("viewer"))
        play.make_policy(f"policy-{number}", limit=3)
    for name in (*PAGES, "policies", "policy"):
        args = ["one-at-once"] if name == "policy" else []
        html(admin_client, name, *args)
        with looking_alone():
            page = html(admin_client, name, *args)
        assert len(page) <= 60_000, name
