"""API tokens, and the command that makes them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from orchestrator.access import tokens
from orchestrator.access.models import ApiToken

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def _stored(token: ApiToken) -> ApiToken:
    return ApiToken.objects.get(pk=token.pk)


def test_token_is_recognised_by_its_text():
    token, text = tokens.create(name="ci", now=NOW)
    assert tokens.authenticate(text, now=NOW) == token


def test_text_has_256_random_bits_and_is_stored_nowhere():
    token, text = tokens.create(name="ci", now=NOW)
    assert text.startswith("mst_")
    assert len(text) == tokens.TEXT_LENGTH
    stored = "".join(str(value) for value in ApiToken.objects.values_list().get(pk=token.pk))
    assert text not in stored
    assert text[len(token.prefix) :] not in stored


@pytest.mark.parametrize(
    "text", ["", "mst_", "x" * 47, "mst_" + "a" * 43, "mst_" + "é" * 43, "mst_" + "\0" * 43]
)
def test_other_text_is_refused(text):
    tokens.create(name="ci", now=NOW)
    assert tokens.authenticate(text, now=NOW) is None


def test_text_that_no_token_can_have_asks_no_database(django_assert_num_queries):
    with django_assert_num_queries(0):
        assert tokens.authenticate("mst_short", now=NOW) is None


def test_revoked_token_is_refused_and_keeps_its_first_end():
    token, text = tokens.create(name="ci", now=NOW)
    tokens.revoke(token, now=NOW)
    tokens.revoke(token, now=NOW + timedelta(hours=1))
    assert tokens.authenticate(text, now=NOW) is None
    assert _stored(token).revoked_at == NOW


def test_token_is_refused_from_the_moment_it_expires():
    end = NOW + timedelta(days=1)
    _, text = tokens.create(name="ci", now=NOW, expires_at=end)
    assert tokens.authenticate(text, now=end - timedelta(seconds=1))
    assert tokens.authenticate(text, now=end) is None


def test_recognising_is_one_query_once_the_use_was_noted(django_assert_num_queries):
    _, text = tokens.create(name="ci", now=NOW)
    tokens.authenticate(text, now=NOW)
    with django_assert_num_queries(1):
        tokens.authenticate(text, now=NOW + timedelta(seconds=59))


def test_last_use_is_noted_once_a_minute():
    token, text = tokens.create(name="ci", now=NOW)
    noted = []
    for seconds in (0, 59, 60, 61):
        tokens.authenticate(text, now=NOW + timedelta(seconds=seconds))
        noted.append(_stored(token).last_used_at)
    later = NOW + timedelta(seconds=60)
    assert noted == [NOW, NOW, later, later]


@pytest.mark.parametrize("name", ["", " ci", "a\nb", "a\0b", "a" * 101])
def test_name_that_no_history_could_show_is_refused(name):
    with pytest.raises(tokens.InvalidName):
        tokens.create(name=name, now=NOW)


def test_name_is_never_used_again_not_even_after_revoking():
    token, _ = tokens.create(name="ci", now=NOW)
    tokens.revoke(token, now=NOW)
    with pytest.raises(tokens.NameTaken, match="'ci'"):
        tokens.create(name="ci", now=NOW)


# --- the command -------------------------------------------------------------------------------


def _run(*arguments: str) -> tuple[str, str]:
    out, err = StringIO(), StringIO()
    call_command("token", *arguments, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def test_create_writes_only_the_text_to_stdout():
    out, err = _run("create", "ci")
    token = ApiToken.objects.get(name="ci")
    assert tokens.authenticate(out.strip(), now=token.created_at) == token
    assert "not shown again" in err


def test_create_with_json_gives_text_and_end():
    out, _ = _run("create", "ci", "--expires-in-days", "2", "--json")
    made = json.loads(out)
    token = ApiToken.objects.get(name="ci")
    assert token.expires_at == token.created_at + timedelta(days=2)
    assert made["expires_at"] == token.expires_at.isoformat()
    assert tokens.authenticate(made["token"], now=token.created_at) == token


@pytest.mark.parametrize("days", ["0", "-1", "nan", "soon", "1e99"])
def test_create_refuses_days_that_are_none(days):
    with pytest.raises(CommandError, match="expected days above 0"):
        _run("create", "ci", "--expires-in-days", days)
    assert not ApiToken.objects.exists()


def test_list_shows_states_and_no_text():
    tokens.create(name="running", now=NOW)
    gone, _ = tokens.create(name="gone", now=NOW)
    tokens.revoke(gone, now=NOW)
    tokens.create(name="over", now=NOW, expires_at=NOW + timedelta(seconds=1))
    found = {row["name"]: row["state"] for row in json.loads(_run("list", "--json")[0])}
    assert found == {"running": "usable", "gone": "revoked", "over": "expired"}
    table = _run("list")[0]
    assert all(name in table for name in found)
    assert max(map(len, table.splitlines())) <= 100


def test_list_says_what_to_do_when_there_is_none():
    assert "token create NAME" in _run("list")[0]


def test_revoke_refuses_the_token():
    token, text = tokens.create(name="ci", now=NOW)
    assert "ci is revoked" in _run("revoke", "ci")[0]
    assert _stored(token).revoked_at is not None
    assert tokens.authenticate(text, now=NOW) is None


def test_revoke_says_when_there_is_nothing_to_revoke():
    with pytest.raises(CommandError, match="No token is called"):
        _run("revoke", "ci")
    tokens.create(name="ci", now=NOW)
    _run("revoke", "ci")
    with pytest.raises(CommandError, match="was revoked at"):
        _run("revoke", "ci")
