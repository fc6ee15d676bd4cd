"""Tokens in the admin."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from orchestrator.access import tokens
from orchestrator.access.models import ApiToken
from orchestrator.access.tokens import state
from tests.core.admin.pages import page

pytestmark = pytest.mark.django_db


def test_a_new_token_is_shown_once_and_kept_nowhere(
    admin_client: Client,
) -> None:
    url = reverse("admin:access_apitoken_add")
    response = admin_client.post(url, {"name": "ci", "expires_at_0": "", "expires_at_1": ""})
    shown_once = re.search(r'<pre [^>]*id="token">([^<]+)</pre>', response.content.decode())
    assert shown_once
    secret = shown_once[1]
    token = ApiToken.objects.get()
    assert len(secret) > 30
    assert secret.startswith(token.prefix)
    assert "no-store" in response["Cache-Control"]
    assert not any(secret in morsel.value for morsel in admin_client.cookies.values())
    detail = page(admin_client, "admin:access_apitoken_change", token.pk)
    assert secret not in detail


def test_a_token_cannot_be_made_expired(admin_client: Client) -> None:
    url = reverse("admin:access_apitoken_add")
    data = {"name": "ci", "expires_at_0": "2020-01-01", "expires_at_1": "00:00:00"}
    assert "This is past" in admin_client.post(url, data).content.decode()
    assert not ApiToken.objects.exists()


def test_a_token_with_a_refused_name_is_not_made(admin_client: Client) -> None:
    url = reverse("admin:access_apitoken_add")
    data = {"name": "zero\u200bwidth", "expires_at_0": "", "expires_at_1": ""}
    response = admin_client.post(url, data, follow=True)
    assert "printable characters" in response.content.decode()
    assert not ApiToken.objects.exists()


def test_a_token_is_revoked_by_its_button(admin_client: Client) -> None:
    token, _ = tokens.create(name="ci", now=timezone.now())
    url = reverse("admin:access_apitoken_revoke", args=[token.pk])
    assert admin_client.post(url, {"_form_submitted": "True"}).status_code == 302
    token.refresh_from_db()
    assert token.revoked_at is not None


def test_a_token_is_usable_until_it_expires_or_is_revoked() -> None:
    now = timezone.now()
    token = ApiToken(name="ci", expires_at=now + timedelta(seconds=1))
    assert state(token, now=now) == "usable"
    assert state(token, now=now + timedelta(seconds=1)) == "expired"
    token.revoked_at = now
    assert state(token, now=now) == "revoked"
