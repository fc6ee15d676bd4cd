"""Grants: where they hold, and who may give them."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from orchestrator.access import grants, identities
from orchestrator.access.authorizer import Identified
from orchestrator.core import authority, clock
from orchestrator.core.authority import WHOLE, PermissionMissing, Place, Scope
from orchestrator.core.frame import NAMESPACES, PACKS, WORKERS
from orchestrator.core.models import Action, DLQEntry, Execution, Worker
from tests import principals
from tests.factories import make_action, make_dlq_entry, make_execution, make_worker
from tests.principals import ROOT, given, principal
from tests.races import at_once
from tests.rows import reread

SHOP = Place(PACKS, "shop")
BILLING = Place(PACKS, "billing-eu")


# --- scopes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "place", "is_covered"),
    [
        ({}, SHOP, True),
        ({}, WHOLE, True),
        ({"packs": ["shop"]}, SHOP, True),
        ({"packs": ["shop"]}, WHOLE, False),
        ({"packs": ["shop"]}, Place(PACKS, "shopping"), False),
        ({"packs": ["sho"]}, SHOP, False),
        ({"packs": ["billing-*"]}, BILLING, True),
        ({"packs": ["billing-*"]}, Place(PACKS, "billing"), False),
        ({"packs": ["*-eu"]}, BILLING, True),
        ({"packs": ["b*-*u"]}, BILLING, True),
        ({"packs": ["*"]}, SHOP, True),
        ({"packs": ["*"]}, Place(NAMESPACES, "shop"), False),
        ({"namespaces": ["shop"]}, Place(NAMESPACES, "shop"), True),
        ({"namespaces": ["shop"]}, SHOP, False),
        ({"labels": (("zone", "b"),)}, Place(WORKERS, "w", {"zone": "b", "gpu": "yes"}), True),
        ({"labels": (("zone", "b"), ("gpu", "yes"))}, Place(WORKERS, "w", {"zone": "b"}), False),
        ({"labels": (("zone", "b"),)}, Place(WORKERS, "w", {}), False),
        ({"packs": ["w"]}, Place(WORKERS, "w", {"zone": "b"}), False),
    ],
)
def test_scope_covers(scope: dict[str, Any], place: Place, is_covered: bool) -> None:
    assert Scope(**{name: tuple(each) for name, each in scope.items()}).covers(place) is is_covered


def test_grants_add_up() -> None:
    somebody = principal(given("viewer", packs=["shop"]), given("operator", packs=["billing-*"]))
    assert authority.may(somebody, "executions.read", SHOP)
    assert authority.may(somebody, "executions.read", BILLING)
    assert not authority.may(somebody, "executions.run", SHOP)
    assert authority.may(somebody, "executions.run", BILLING)
    assert not authority.may(somebody, "executions.run", Place(PACKS, "core"))


def test_scoped_grant_gives_nothing_that_is_about_the_whole_installation() -> None:
    assert authority.may(principal(given("viewer")), "metrics.read")
    assert not authority.may(principal(given("viewer", packs=["*"])), "metrics.read")
    assert not authority.may(principal(given("admin", packs=["*"])), "access.manage")


@pytest.mark.parametrize(
    ("gives", "scope", "complaint"),
    [
        ("operater", {}, "did you mean operator"),
        ("executions.run", {"packs": ["Shop"]}, "expected a-z"),
        ("executions.run", {"packs": ["shop."]}, "expected a-z"),
        ("executions.run", {"packs": ["shop?"]}, "expected a-z"),
        ("executions.run", {"packs": [""]}, "expected a-z"),
        ("executions.run", {"packs": ["a"] * 51}, "at most 50"),
        ("executions.run", {"namespaces": ["shop"]}, "not about namespaces"),
        ("workers.order", {"packs": ["shop"]}, "not about packs"),
        ("workers.order", {"labels": {"zone": ""}}, "label zone"),
        ("metrics.read", {"packs": ["shop"]}, "not about packs"),
    ],
)
def test_grant_that_means_nothing_is_refused(
    gives: str, scope: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(grants.InvalidGrant, match=complaint):
        given(gives, **scope)


# --- rows ----------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("packs", "expected"),
    [
        (["shop"], {"shop.sell"}),
        (["shop", "billing-*"], {"shop.sell", "billing-eu.charge"}),
        (["*"], {"shop.sell", "billing-eu.charge", "shopping.list"}),
        (["nothing"], set()),
    ],
)
def test_listings_have_what_single_rows_have(packs: list[str], expected: set[str]) -> None:
    """One pattern is read by two databases and by Python: they agree."""
    for ref in ("shop.sell", "billing-eu.charge", "shopping.list"):
        execution = make_execution(action=make_action(ref))
        make_dlq_entry(about=execution, subject_name=ref)
    somebody = principal(given("viewer", packs=packs))
    for rows, name in (
        (Action.objects.visible_to(somebody), "ref"),
        (Execution.objects.visible_to(somebody), "action_ref"),
        (DLQEntry.objects.visible_to(somebody), "subject_name"),
    ):
        assert {getattr(row, name) for row in rows} == expected
    for permission, every in (
        ("actions.read", Action.objects.all()),
        ("executions.read", Execution.objects.all()),
        ("dlq.read", DLQEntry.objects.all()),
    ):
        single = [row for row in every if authority.may(somebody, permission, row.place)]
        assert len(single) == len(expected)


@pytest.mark.usefixtures("database", "sent")
def test_listings_are_narrowed_on_both_databases() -> None:
    for ref in ("shop.sell", "shop-eu.sell", "core.echo"):
        make_dlq_entry(
            about=make_execution(action=make_action(ref)), subject_name=ref, attempt=1,
            fingerprint=ref,
        )  # fmt: skip
    make_worker("w1", labels={"zone": "b"})
    make_worker("w2", labels={"zone": "c"})
    somebody = principal(
        given("viewer", packs=["shop*"]),
        given("workers.read", labels={"zone": "b"}),
    )
    assert Execution.objects.visible_to(somebody).count() == 2
    assert [row.name for row in Worker.objects.visible_to(somebody)] == ["w1"]
    (counted,) = DLQEntry.objects.visible_to(somebody).counted_by_reason()
    assert (counted["total_entries"], counted["pending"]) == (2, 2)
    assert counted["avg_resolution_time_minutes"] is None
    narrowed = principals.principal(given("viewer", packs=["*-eu"]))
    assert Execution.objects.visible_to(narrowed).count() == 1
    assert DLQEntry.objects.visible_to(narrowed).count() == 1


@pytest.mark.django_db
def test_layers_narrow_each_other() -> None:
    for ref in ("shop.sell", "shop-eu.sell"):
        make_execution(action=make_action(ref))
    owner, token = (given("viewer", packs=["shop*"]),), (given("viewer", packs=["*-eu"]),)
    both = Identified("a", 1, layers=(owner, token))
    assert [row.action_ref for row in Execution.objects.visible_to(both)] == ["shop-eu.sell"]
    reach = both.reach("executions.read")
    assert [reach.covers(Place(PACKS, name)) for name in ("shop", "shop-eu", "x-eu")] == [
        False, True, False,
    ]  # fmt: skip


# --- giving --------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_nobody_gives_what_they_do_not_have() -> None:
    service = principals.service("ci")
    manager = principal(given("access.manage"), given("operator", packs=["billing-*"]))
    now = clock.now()
    for refused in (
        given("operator"),
        given("executions.run"),
        given("executions.run", packs=["shop"]),
        given("executions.run", packs=["*"]),
        given("payloads.read", packs=["billing-eu"]),
    ):
        with pytest.raises(PermissionMissing, match="Granting"):
            identities.grant(service, refused, by=manager, now=now)
    identities.grant(service, given("executions.run", packs=["billing-eu"]), by=manager, now=now)
    identities.grant(service, given("executions.run", packs=["billing-e*"]), by=manager, now=now)
    assert service.grants.count() == 2


@pytest.mark.django_db
def test_same_grant_is_not_given_twice() -> None:
    service = principals.service("ci", given("viewer", packs=["shop"]))
    with pytest.raises(identities.AlreadyGranted, match="viewer in pack shop already"):
        identities.grant(service, given("viewer", packs=["shop"]), by=ROOT, now=clock.now())
    identities.grant(service, given("viewer", packs=["core"]), by=ROOT, now=clock.now())


@pytest.mark.django_db
def test_who_may_do_more_is_not_enabled_by_who_may_do_less() -> None:
    boss, _ = (principals.service(name, given("admin")) for name in ("boss", "owner"))
    manager = principal(given("access.manage"))
    identities.disable(boss, by=manager, now=clock.now())
    with pytest.raises(PermissionMissing, match="Enabling admin"):
        identities.enable(boss, by=manager)


# --- the last admin ------------------------------------------------------------------------------


@pytest.mark.django_db
def test_last_admin_is_neither_disabled_nor_stripped() -> None:
    boss = principals.service("boss", given("admin"), given("viewer"))
    principals.service("of-one-pack", given("admin", packs=["shop"]))
    away = principals.service("away", given("admin"))
    identities.disable(away, by=ROOT, now=clock.now())
    with pytest.raises(identities.LastAdmin, match="make somebody else an admin"):
        identities.disable(boss, by=ROOT, now=clock.now())
    with pytest.raises(identities.LastAdmin):
        identities.revoke(boss, list(boss.grants.filter(gives="admin")), by=ROOT)
    assert identities.state(reread(boss)) == "enabled"
    assert boss.grants.count() == 2
    identities.revoke(boss, list(boss.grants.filter(gives="viewer")), by=ROOT)
    identities.enable(away, by=ROOT)
    identities.disable(boss, by=ROOT, now=clock.now())
    assert identities.state(reread(boss)) == "disabled"


@pytest.mark.django_db
def test_superuser_without_an_identity_is_an_admin_too() -> None:
    boss = principals.service("boss", given("admin"))
    get_user_model().objects.create_superuser("root")
    identities.disable(boss, by=ROOT, now=clock.now())
    assert identities.state(reread(boss)) == "disabled"


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
@pytest.mark.django_db(transaction=True)
def test_two_admins_who_disable_each_other_at_once_do_not_both_succeed(database: str) -> None:
    ann, bob = (principals.service(name, given("admin")) for name in ("ann", "bob"))
    outcomes = at_once(
        *(partial(identities.disable, each, by=ROOT, now=clock.now()) for each in (ann, bob))
    )
    assert {type(each) for each in outcomes} == {type(None), identities.LastAdmin}
