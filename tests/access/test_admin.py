"""Tokens, identities and users in the admin."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from orchestrator.access import identities, tokens
from orchestrator.access.models import ApiToken, Identity
from tests import principals
from tests.core.admin.pages import page
from tests.principals import given, staff

pytestmark = pytest.mark.django_db

ADD = "admin:access_apitoken_add"
EMPTY = {"packs": "", "namespaces": "", "labels": "", "networks": "", "days": "90"}
TEXT = re.compile(r'<pre [^>]*id="token">([^<]+)</pre>')


# --- tokens --------------------------------------------------------------------------------------


def test_a_new_token_is_shown_once_and_kept_nowhere(admin_client: Client) -> None:
    response = admin_client.post(reverse(ADD), {"name": "ci", **EMPTY})
    shown_once = TEXT.search(response.content.decode())
    assert shown_once
    token = ApiToken.objects.get()
    assert tokens.of_text(shown_once[1]) == token
    assert str(token.identity) == "user:admin"
    assert "no-store" in response["Cache-Control"]
    assert not any(shown_once[1] in morsel.value for morsel in admin_client.cookies.values())
    detail = page(admin_client, "admin:access_apitoken_change", token.pk)
    assert shown_once[1] not in detail


def test_a_token_is_made_for_a_service_narrowed_and_for_some_networks(
    admin_client: Client,
) -> None:
    owner = principals.service("ci", given("operator"))
    data = {
        **EMPTY, "name": "ci", "owner": owner.pk, "gives": ["executions.run"],
        "packs": "billing-*, core", "networks": "10.0.0.0/8", "days": "7",
    }  # fmt: skip
    assert admin_client.post(reverse(ADD), data).status_code == 200
    token = ApiToken.objects.get()
    assert token.identity == owner
    assert token.grants == [{"gives": "executions.run", "scope": {"packs": ["billing-*", "core"]}}]
    assert token.networks == ["10.0.0.0/8"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"days": "367"}, "less than or equal to 366"),
        ({"days": "0"}, "greater than or equal to 1"),
        ({"name": "zero\u200bwidth"}, "printable characters"),
        ({"networks": "nowhere"}, "such as 10.1.0.0/16"),
        ({"labels": "zone"}, "Expected key=value"),
        ({"gives": ["executions.run"], "namespaces": "shop"}, "not about namespaces"),
    ],
)
def test_a_token_that_cannot_be_is_not_made(
    admin_client: Client, change: dict[str, Any], complaint: str
) -> None:
    data = {"name": "ci", **EMPTY, **change}
    response = admin_client.post(reverse(ADD), data, follow=True)
    assert complaint in response.content.decode()
    assert not ApiToken.objects.exists()


def test_a_token_is_revoked_by_its_button(admin_client: Client) -> None:
    principals.token("ci", given("viewer"))
    token = ApiToken.objects.get()
    url = reverse("admin:access_apitoken_revoke", args=[token.pk])
    assert admin_client.post(url, {"_form_submitted": "True"}).status_code == 302
    token.refresh_from_db()
    assert token.revoked_at is not None


def test_a_token_is_rotated_by_its_button_and_shown_where_the_dialog_was(
    admin_client: Client,
) -> None:
    principals.token("ci", given("viewer"))
    token = ApiToken.objects.get()
    url = reverse("admin:access_apitoken_rotate", args=[token.pk])
    response = admin_client.post(url, {"_form_submitted": "True"})
    shown_once = TEXT.search(response.content.decode())
    assert shown_once
    assert 'id="dialog-form"' in response.content.decode()
    row = tokens.of_text(shown_once[1])
    assert row is not None
    assert row.pk != token.pk
    assert "no-store" in response["Cache-Control"]


def test_people_see_make_and_revoke_their_own_tokens_only() -> None:
    principals.token("ci", given("admin"))
    foreign = ApiToken.objects.get()
    ada = staff("ada", given("viewer"))
    html = page(ada, "admin:access_apitoken_changelist")
    assert foreign.prefix not in html
    assert "owner" not in ada.get(reverse(ADD)).context["adminform"].form.fields
    ada.post(reverse(ADD), {"name": "laptop", **EMPTY, "owner": foreign.identity_id})
    own = ApiToken.objects.get(name="laptop")
    assert str(own.identity) == "user:ada"
    for token, status in ((foreign, 403), (own, 302)):
        url = reverse("admin:access_apitoken_revoke", args=[token.pk])
        assert ada.post(url, {"_form_submitted": "True"}).status_code == status
    foreign.refresh_from_db()
    assert foreign.revoked_at is None


# --- identities ----------------------------------------------------------------------------------


def button(identity: Identity, verb: str) -> str:
    return reverse(f"admin:access_identity_{verb}", args=[identity.pk])


def test_a_service_account_is_made_granted_revoked_and_disabled(admin_client: Client) -> None:
    add = reverse("admin:access_identity_add")
    data = {"service_name": "ci", "description": "builds"}
    assert admin_client.post(add, data).status_code == 302
    identity = Identity.objects.get(service_name="ci")
    for verb, form in (
        ("grant", {"gives": "operator", "packs": "billing-*", "namespaces": "", "labels": ""}),
        ("grant", {"gives": "payloads.read", "packs": "", "namespaces": "", "labels": ""}),
    ):
        response = admin_client.post(button(identity, verb), {"_form_submitted": "True", **form})
        assert response.status_code == 302
    assert [str(each) for each in identities.given_to(identity)] == [
        "operator in pack billing-*", "payloads.read"
    ]  # fmt: skip
    html = page(admin_client, "admin:access_identity_change", identity.pk)
    assert "operator in pack billing-*" in html
    assert "user:admin" in html
    chosen = {"_form_submitted": "True", "grant": identity.grants.all()[0].pk}
    assert admin_client.post(button(identity, "revoke"), chosen).status_code == 302
    admin_client.post(button(identity, "disable"), {"_form_submitted": "True"})
    identity = Identity.objects.get(service_name="ci")
    assert identity.is_disabled
    assert [str(each) for each in identities.given_to(identity)] == ["payloads.read"]


def test_a_grant_that_cannot_be_is_explained_in_the_dialog(admin_client: Client) -> None:
    identity = principals.service("ci")
    form = {"gives": "metrics.read", "packs": "core", "namespaces": "", "labels": ""}
    response = admin_client.post(button(identity, "grant"), {"_form_submitted": "True", **form})
    assert "is not about packs" in response.content.decode()
    assert not identity.grants.exists()


def test_who_manages_access_grants_nothing_that_they_do_not_have() -> None:
    identity = principals.service("ci")
    ada = staff("ada", given("access.manage"), given("viewer"))
    form = {"_form_submitted": "True", "packs": "", "namespaces": "", "labels": ""}
    ada.post(button(identity, "grant"), {**form, "gives": "admin"})
    assert not identity.grants.exists()
    ada.post(button(identity, "grant"), {**form, "gives": "viewer"})
    assert [each.gives for each in identity.grants.all()] == ["viewer"]


def test_who_manages_no_access_sees_no_identities() -> None:
    identity = principals.service("ci")
    ada = staff("ada", given("operator"))
    assert ada.get(reverse("admin:access_identity_changelist")).status_code == 403
    assert ada.get(button(identity, "grant")).status_code == 403
    assert ada.get(reverse("admin:auth_user_changelist")).status_code == 403


# --- users ---------------------------------------------------------------------------------------


def test_only_a_superuser_touches_superusers() -> None:
    boss = User.objects.create_superuser("boss", password="a-made-up-password")
    ada = staff("ada", given("access.manage"))
    url = reverse("admin:auth_user_change", args=[boss.pk])
    assert ada.post(url, {"username": "mine"}).status_code == 403
    password = reverse("admin:auth_user_password_change", args=[boss.pk])
    assert ada.get(password).status_code == 403
    own = User.objects.get(username="ada")
    form = ada.get(reverse("admin:auth_user_change", args=[own.pk])).context["adminform"].form
    assert "is_superuser" not in form.fields


JOINED = {"date_joined_0": "2026-03-01", "date_joined_1": "12:00:00"}


def password_of(user: User) -> str:
    return reverse("admin:auth_user_password_change", args=[user.pk])


@pytest.mark.parametrize(
    ("has", "status"),
    [
        (given("admin"), 403),
        (given("operator"), 403),
        (given("viewer"), 200),
        (given("viewer", packs=["shop"]), 200),
        (None, 200),
    ],
)
def test_nobody_touches_another_user_who_may_do_more(has: Any, status: int) -> None:
    staff("bob", *([has] if has else []))
    bob = User.objects.get(username="bob")
    ada = staff("ada", given("access.manage"), given("viewer"))
    assert ada.get(password_of(bob)).status_code == status
    new = {"password1": "a-made-up-password", "password2": "a-made-up-password"}
    changed = ada.post(password_of(bob), {**new, "usable_password": "true"})
    assert changed.status_code == (302 if status == 200 else 403)
    assert User.objects.get(username="bob").has_usable_password() is (status == 200)
    page_of_bob = reverse("admin:auth_user_change", args=[bob.pk])
    assert ada.post(page_of_bob, {"username": "bob", **JOINED}).status_code == changed.status_code
    assert ada.get(password_of(User.objects.get(username="ada"))).status_code == 200


def test_superuser_touches_everybody(admin_client: Client) -> None:
    staff("bob", given("admin"))
    for user in User.objects.all():
        assert admin_client.get(password_of(user)).status_code == 200


@pytest.mark.parametrize("is_active", [True, False])
def test_users_are_disabled_and_enabled_on_the_page_of_their_identity_alone(
    admin_client: Client, is_active: bool
) -> None:
    bob = User.objects.create_user("bob", is_active=is_active)
    url = reverse("admin:auth_user_change", args=[bob.pk])
    assert "is_active" not in admin_client.get(url).context["adminform"].form.fields
    data = {"username": "bob", **JOINED} | ({} if is_active else {"is_active": "on"})
    assert admin_client.post(url, data).status_code == 302
    bob.refresh_from_db()
    assert bob.is_active is is_active


def test_djangos_own_permissions_open_no_page() -> None:
    from django.contrib.auth.models import Permission

    user = User.objects.create_user("ada", is_staff=True)
    user.user_permissions.set(Permission.objects.all())
    client = Client()
    client.force_login(user)
    for model in ("orchestrator_execution", "access_apitoken", "auth_user", "workflows_task"):
        assert client.get(reverse(f"admin:{model}_changelist")).status_code == 403
