"""`manage.py access`, and commands that act for an identity."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured

from orchestrator.access import grants, identities
from orchestrator.access.models import Grant, Identity
from orchestrator.core.models import Execution
from settings import muster
from tests import commands, principals
from tests.factories import make_action, make_execution, make_worker
from tests.principals import given

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent", "embedded_broker")]

run, document, refused = commands.of("access")
items = partial(commands.items, "access")


def test_service_account_is_made_granted_and_revoked() -> None:
    assert "service:ci is made" in run("create", "ci", "--description", "builds")
    run("grant", "ci", "operator", "--pack", "billing-*", "--pack", "core", "--label", "zone=b")
    run("grant", "service:ci", "payloads.read")
    (row,) = items("list")
    assert [grant["gives"] for grant in row["grants"]] == ["operator", "payloads.read"]
    assert row["grants"][0]["scope"] == {
        "packs": ["billing-*", "core"], "namespaces": [], "labels": {"zone": "b"},
    }  # fmt: skip
    assert row["grants"][0]["granted_by"].startswith("cli")
    assert "operator in packs billing-*, core; workers with" in run("list")
    assert "It may still: payloads.read" in run("revoke", "ci", "operator")
    assert "It may do nothing now" in run("revoke", "ci", "payloads.read")
    assert "no such grant" in refused("revoke", "ci", "operator")


def test_only_the_grant_with_this_scope_is_revoked() -> None:
    run("create", "ci")
    for pack in ("one", "two"):
        run("grant", "ci", "viewer", "--pack", pack)
    run("revoke", "ci", "viewer", "--pack", "one")
    assert [row.scope for row in Grant.objects.all()] == [{"packs": ["two"]}]


def test_user_is_granted_a_role_and_disabled() -> None:
    user = User.objects.create_user("ada")
    assert "user:ada is granted viewer" in run("grant", "ada", "viewer")
    run("disable", "user:ada")
    user.refresh_from_db()
    assert not user.is_active
    run("enable", "ada")
    user.refresh_from_db()
    assert user.is_active


def test_user_is_listed_before_anything_is_granted() -> None:
    User.objects.create_superuser("boss", password="a-made-up-password")
    User.objects.create_user("ada", is_staff=True)
    assert {row["name"] for row in items("list")} == {"boss", "ada"}


def test_name_of_two_has_to_be_said_in_full() -> None:
    User.objects.create_user("ci")
    run("create", "ci")
    assert "Say which: service:ci or user:ci" in refused("grant", "ci", "viewer")
    run("grant", "service:ci", "viewer")
    assert Identity.objects.get(service_name="ci").grants.count() == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["create", "a:b"], "no colon"),
        (["create", " "], "printable"),
        (["grant", "nobody", "viewer"], "see: manage.py access list"),
        (["grant", "ci", "king"], "see: manage.py access roles"),
        (["grant", "ci", "viewer", "--pack", "A"], "expected a-z"),
        (["disable", "nobody"], "No user and no service account"),
    ],
)
def test_what_cannot_be_is_refused(arguments: list[str], complaint: str) -> None:
    run("create", "ci")
    assert complaint in refused(*arguments)
    assert not Grant.objects.exists()


def test_roles_are_listed_with_each_permission() -> None:
    listed = {row["permission"]: row["roles"] for row in items("roles")}
    assert listed.keys() == grants.permissions().keys()
    assert listed["executions.cancel"] == ["operator", "author", "admin"]
    assert listed["payloads.read"] == ["admin"]
    assert "executions.cancel" in run("roles").split()


def test_empty_list_says_what_to_do() -> None:
    assert "access create NAME" in run("list")


# --- commands that act for an identity -----------------------------------------------------------


@pytest.fixture
def as_viewer(settings: Any) -> None:
    """Commands act for a service that sees the pack `shop`."""
    principals.service("limited", given("viewer", packs=["shop"]))
    settings.MUSTER = replace(settings.MUSTER, command_identity="service:limited")


@pytest.mark.usefixtures("as_viewer")
def test_command_is_refused_what_its_identity_lacks() -> None:
    make_action("shop.sell")
    for arguments, permission in (
        (["execution", "submit", "shop.sell"], "executions.run"),
        (["workers", "retire", "w1"], "workers.retire"),
        (["token", "create", "x"], "tokens.manage"),
        (["access", "list"], "access.manage"),
        (["dlq", "drain"], "topology.change"),
        (["advise"], "metrics.read"),
    ):
        assert f"needs the permission {permission}" in commands.refused(*arguments)
    assert not Execution.objects.exists()


@pytest.mark.usefixtures("as_viewer")
def test_command_sees_what_its_identity_sees() -> None:
    mine = make_execution(action=make_action("shop.sell"))
    foreign = make_execution(action=make_action("core.echo"))
    make_worker("w1")
    (listed,) = commands.document("execution", "list")["items"]
    assert listed["id"] == str(mine.pk)
    assert "No execution has an id" in commands.refused("execution", "show", str(foreign.pk))
    assert commands.items("workers", "list") == []


def test_actor_of_a_command_names_both(settings: Any) -> None:
    make_action("shop.sell")
    owner = principals.service("limited", given("operator", packs=["shop"]))
    settings.MUSTER = replace(settings.MUSTER, command_identity="limited")
    commands.printed("execution", "submit", "shop.sell", "--idempotency-key", "k")
    row = Execution.objects.get()
    assert row.requested_by.startswith("cli")
    assert row.requested_by.endswith(" as service:limited")
    assert row.key_owner == owner.pk


def test_command_for_an_identity_that_is_not_there_is_refused(settings: Any) -> None:
    settings.MUSTER = replace(settings.MUSTER, command_identity="service:nobody")
    assert "No user and no service account" in commands.refused("workers", "list")
    identity = principals.service("gone", given("operator"))
    identities.disable(identity, by=principals.ROOT, now=identity.created_at)
    settings.MUSTER = replace(settings.MUSTER, command_identity="service:gone")
    assert "service:gone is disabled" in commands.refused("workers", "list")


def test_setting_is_read_from_the_environment() -> None:
    environment = {"MUSTER_COMMAND_IDENTITY": "service:limited"}
    assert muster.from_environment(environment).command_identity == "service:limited"
    assert muster.from_environment({}).command_identity == ""
    with pytest.raises(ImproperlyConfigured, match="MUSTER_COMMAND_IDENTITY"):
        muster.from_environment({"MUSTER_COMMAND_IDENTITI": "x"})
