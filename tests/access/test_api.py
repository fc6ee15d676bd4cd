"""Tokens, identities and grants over the API. Who may call what is in tests/security/authz.csv."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from orchestrator.access.models import ApiToken, Grant, Identity
from orchestrator.core import clock
from tests import principals
from tests.core.api.client import Caller, pointers
from tests.principals import given

pytestmark = pytest.mark.django_db


def created(caller: Caller, **body: Any) -> Any:
    return caller.post("/tokens", {"name": "new", "owner": "service:ci", **body})


# --- tokens --------------------------------------------------------------------------------------


def test_token_is_made_shown_once_and_works(caller: Caller) -> None:
    response = created(caller, expires_in_days=7, networks=["127.0.0.0/8"])
    assert response.status_code == 201
    assert response["Cache-Control"] == "no-store"
    made = response.json()
    assert Caller(made["token"]).get("/executions").status_code == 200
    row = ApiToken.objects.get(name="new")
    assert row.expires_at == row.created_at + timedelta(days=7)
    assert (made["owner"], made["created_by"]) == ("service:ci", "ci")
    listed = caller.get("/tokens").content.decode()
    assert made["prefix"] in listed
    assert made["token"] not in listed


def test_narrowed_token_is_refused_what_it_lacks(caller: Caller) -> None:
    only = [{"gives": "viewer", "scope": {"packs": ["billing-*"]}}]
    narrowed = Caller(created(caller, only=only).json()["token"])
    assert narrowed.get("/executions").status_code == 200
    response = narrowed.post("/executions", {"action_ref": "core.echo"})
    assert response.status_code == 403
    assert response.json()["detail"] == "This needs the permission executions.run"


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"owner": "service:nobody"}, "/owner"),
        ({"name": " x"}, "/name"),
        ({"name": ""}, "/name"),
        ({"expires_in_days": 367}, "/expires_in_days"),
        ({"expires_in_days": 0}, "/expires_in_days"),
        ({"only": [{"gives": "king"}]}, "/only"),
        ({"only": [{"gives": "viewer", "scope": {"packs": ["A"]}}]}, "/only"),
        ({"networks": ["nowhere"]}, ""),
        ({"grants": []}, "/grants"),
    ],
)
def test_token_that_cannot_be_is_refused(
    caller: Caller, change: dict[str, Any], pointer: str
) -> None:
    response = created(caller, **change)
    assert (response.status_code, pointers(response)) == (422, [pointer])
    assert not ApiToken.objects.filter(name="new").exists()


def test_name_in_use_is_a_conflict(caller: Caller) -> None:
    created(caller)
    response = created(caller)
    assert response.status_code == 409
    assert response.json()["type"] == "urn:muster:problem:name-taken"


def test_rotated_token_has_two_texts_for_the_overlap(caller: Caller) -> None:
    first = created(caller).json()
    rotated = caller.post(f"/tokens/{first['id']}/rotate", {"overlap_seconds": 60})
    assert rotated.status_code == 201
    for text in (first["token"], rotated.json()["token"]):
        assert Caller(text).get("/executions").status_code == 200
    ApiToken.objects.filter(pk=first["id"]).update(expires_at=clock.now())
    assert Caller(first["token"]).get("/executions").status_code == 401
    again = caller.post(f"/tokens/{first['id']}/rotate", {})
    assert again.json()["type"] == "urn:muster:problem:not-in-use"


def test_revoked_token_is_refused_at_once_and_revoking_may_be_repeated(caller: Caller) -> None:
    made = created(caller).json()
    own = Caller(made["token"])
    for _ in range(2):
        response = caller.delete(f"/tokens/{made['id']}")
        assert (response.status_code, response.json()["state"]) == (200, "revoked")
    assert own.get("/executions").status_code == 401


def test_token_makes_no_token_that_may_do_more() -> None:
    principals.service("boss", given("admin"))
    manager = principals.caller("manager", given("tokens.manage"), given("viewer"))
    response = created(manager, owner="service:boss")
    assert response.status_code == 403
    assert "A token with admin needs the permission" in response.json()["detail"]
    only = [{"gives": "viewer", "scope": {}}]
    assert created(manager, owner="service:boss", only=only).status_code == 201


# --- identities ----------------------------------------------------------------------------------


def test_service_account_is_made_granted_and_disabled(caller: Caller) -> None:
    made = caller.post("/identities", {"name": "nightly", "description": "backups"}).json()
    place = f"/identities/{made['id']}"
    body = {"gives": "operator", "scope": {"packs": ["backup"], "labels": {"zone": "b"}}}
    granted = caller.post(f"{place}/grants", body)
    assert granted.status_code == 201
    shown = caller.get(place).json()
    assert (shown["kind"], shown["name"], shown["state"]) == ("service", "nightly", "enabled")
    assert shown["grants"][0]["scope"] == {
        "packs": ["backup"], "namespaces": [], "labels": {"zone": "b"},
    }  # fmt: skip
    assert shown["grants"][0]["granted_by"] == "ci"
    assert caller.post(f"{place}/grants", body).status_code == 409
    left = caller.delete(f"{place}/grants/{granted.json()['id']}").json()
    assert left == {"items": []}
    assert caller.post(f"{place}/disable").json()["state"] == "disabled"
    assert caller.post(f"{place}/enable").json()["state"] == "enabled"


def test_user_becomes_an_identity(caller: Caller, admin_user: Any) -> None:
    made = caller.post("/identities", {"user": "admin"}).json()
    assert (made["kind"], made["is_superuser"]) == ("user", True)
    assert caller.post("/identities", {"user": "admin"}).json()["id"] == made["id"]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, ""),
        ({"name": "a", "user": "b"}, ""),
        ({"name": "a:b"}, "/name"),
        ({"user": "nobody"}, "/user"),
        ({"name": "a", "admin": True}, "/admin"),
    ],
)
def test_identity_that_cannot_be_is_refused(
    caller: Caller, body: dict[str, Any], pointer: str
) -> None:
    before = Identity.objects.count()
    response = caller.post("/identities", body)
    assert (response.status_code, pointers(response)) == (422, [pointer])
    assert Identity.objects.count() == before


def test_grant_of_another_identity_is_not_found(caller: Caller) -> None:
    one = principals.service("one", given("viewer"))
    two = principals.service("two", given("viewer"))
    grant = Grant.objects.get(identity=two)
    assert caller.delete(f"/identities/{one.pk}/grants/{grant.pk}").status_code == 404
    assert caller.get("/identities/999999").status_code == 404
    assert Grant.objects.filter(pk=grant.pk).exists()
