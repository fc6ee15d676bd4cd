"""Keys in the admin: what is typed there does not come back."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from orchestrator.access import keys
from orchestrator.access.models import Key
from orchestrator.core import keyholder
from orchestrator.core.keyholder import Wanted
from tests.core.admin.pages import page
from tests.factories import NOW
from tests.principals import ROOT, given, staff

pytestmark = pytest.mark.django_db

VALUE = "sk_live_0123456789"
ADD = "admin:access_key_add"


def opened() -> str:
    wanted = Wanted("billing/stripe", "billing.charge", 0)
    return keyholder.holder().open([wanted])[wanted].value


def create() -> Key:
    reference = keys.Reference("pack", "billing", "stripe")
    return keys.create(keys.NewKey(reference=reference, value=VALUE), by=ROOT, now=NOW)


def add(client: Client, **change: Any) -> str:
    form = {"reference": "billing/stripe", "value": VALUE, "for_packs": "", "description": "test"}
    return client.post(reverse(ADD), form | change, follow=True).content.decode()


def test_key_is_created_and_its_page_has_no_value(billing: None, admin_client: Client) -> None:
    text = add(admin_client)
    assert opened() == VALUE
    key = Key.objects.get()
    assert key.created_by == "user:admin"
    text += page(admin_client, "admin:access_key_changelist")
    text += page(admin_client, "admin:access_key_change", key.pk)
    text += str(list(LogEntry.objects.values()))
    assert VALUE not in text
    assert "billing/stripe" in text


@pytest.mark.parametrize(
    "change",
    [{"reference": "nope"}, {"reference": "nopack/x"}, {"for_packs": "mail"}, {"value": VALUE[:7]}],
)
def test_form_with_an_error_does_not_send_the_value_back(
    billing: None, admin_client: Client, change: dict[str, str]
) -> None:
    text = add(admin_client, **change)
    assert not Key.objects.exists()
    assert VALUE[:7] not in text


@pytest.mark.parametrize("change", [{"for_packs": "mail"}, {"value": VALUE[:7]}])
def test_form_that_a_verb_refuses_keeps_what_was_typed_but_for_the_value(
    billing: None, admin_client: Client, change: dict[str, str]
) -> None:
    form = {"reference": "billing/stripe", "value": VALUE, "for_packs": "", "description": "test"}
    answer = admin_client.post(reverse(ADD), form | change)
    text = answer.content.decode()
    assert answer.status_code == 200
    assert 'value="billing/stripe"' in text
    assert 'value="test"' in text
    assert VALUE[:7] not in text
    assert answer.context["errors"]
    assert not LogEntry.objects.exists()


def test_key_is_rotated_and_revoked_by_its_buttons(billing: None, admin_client: Client) -> None:
    key = create()
    url = reverse("admin:access_key_rotate", args=[key.pk])
    data = {"_form_submitted": "True", "value": "another-value"}
    assert admin_client.post(url, data).status_code == 302
    assert opened() == "another-value"
    url = reverse("admin:access_key_revoke", args=[key.pk])
    assert admin_client.post(url, {"_form_submitted": "True"}).status_code == 302
    assert Key.objects.usable().count() == 0
    assert "Revoke this key?" not in page(admin_client, "admin:access_key_change", key.pk)


def test_short_value_is_refused_by_the_dialog_and_not_sent_back(
    billing: None, admin_client: Client
) -> None:
    key = create()
    url = reverse("admin:access_key_rotate", args=[key.pk])
    answer = admin_client.post(url, {"_form_submitted": "True", "value": "seven77"}, follow=True)
    assert "seven77" not in answer.content.decode()
    assert opened() == VALUE


def test_staff_who_may_only_view_have_no_buttons(billing: None) -> None:
    key = create()
    eve = staff("eve", given("operator"))
    assert eve.get(reverse(ADD)).status_code == 403
    text = page(eve, "admin:access_key_change", key.pk)
    assert "billing/stripe" in text
    assert "Rotate" not in text
    for verb in ("rotate", "revoke"):
        url = reverse(f"admin:access_key_{verb}", args=[key.pk])
        eve.post(url, {"_form_submitted": "True", "value": "another-value"})
    assert opened() == VALUE


def test_author_sees_and_changes_the_keys_of_own_packs(billing: None) -> None:
    key = create()
    stranger = staff("stranger", given("author", packs=["mail"]))
    url = reverse("admin:access_key_rotate", args=[key.pk])
    data = {"_form_submitted": "True", "value": "another-value"}
    stranger.post(url, data)
    assert "billing/stripe" not in page(stranger, "admin:access_key_changelist")
    assert opened() == VALUE
    staff("author", given("author", packs=["billing"])).post(url, data)
    assert opened() == "another-value"
