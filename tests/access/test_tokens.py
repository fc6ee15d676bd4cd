"""API tokens: their texts, their ends, and the command that makes them."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User

from orchestrator.access import grants, identities, tokens
from orchestrator.access.authorizer import Identified
from orchestrator.access.models import ApiToken, Identity
from orchestrator.core.authority import PermissionMissing, Place
from orchestrator.core.frame import PACKS
from tests import commands, principals
from tests.factories import NOW
from tests.principals import ROOT, given

pytestmark = pytest.mark.django_db

run, document, refused = commands.of("token")
items = partial(commands.items, "token")

SCANNED = re.compile(r"mst_[A-Za-z0-9_-]{43}[0-9A-Za-z]{6}")
"""What docs/operating.md gives to scanners for secrets."""


@pytest.fixture
def owner() -> Identity:
    return principals.service("ci", given("operator"))


def create(owner: Identity, name: str = "ci", **values: Any) -> tuple[ApiToken, str]:
    return tokens.create(name=name, owner=owner, by=ROOT, now=NOW, **values)


def authenticated(text: str, **values: Any) -> Identified | None:
    return tokens.authenticate(text, **{"now": NOW, **values})


# --- texts ---------------------------------------------------------------------------------------


def test_token_is_recognised_by_its_text(owner):
    known = authenticated(create(owner)[1])
    assert known is not None
    assert (known.actor, known.identity, known.key_owner) == ("ci", "service:ci", owner.pk)


def test_text_has_256_random_bits_and_a_checksum_and_is_stored_nowhere(owner):
    token, text = create(owner)
    assert SCANNED.fullmatch(text)
    assert text[47:] == tokens.checksum(text[:47])
    stored = "".join(str(value) for value in ApiToken.objects.values_list().get(pk=token.pk))
    assert text[len(token.prefix) :] not in stored


def test_checksum_is_crc_32_in_base_62():
    """As scanners for secrets compute it: fixed, as tokens outlive versions."""
    assert tokens.checksum("") == "000000"
    assert tokens.checksum("mst_" + "A" * 43) == "37qvws"


def test_text_of_before_the_checksum_is_recognised(owner):
    token, text = create(owner)
    old = text[: tokens.OLD_TEXT_LENGTH]
    ApiToken.objects.filter(pk=token.pk).update(digest=tokens._digest(old))
    assert authenticated(old)


@pytest.mark.parametrize(
    "text",
    ["", "mst_", "x" * 47, "mst_" + "a" * 43, "mst_" + "a" * 49, "mst_" + "é" * 43, "\0" * 53],
)
def test_other_text_is_refused(owner, text):
    create(owner)
    assert authenticated(text) is None


def test_mistyped_text_asks_no_database(owner, django_assert_num_queries):
    _, text = create(owner)
    swapped = text[:10] + text[11] + text[10] + text[12:]
    with django_assert_num_queries(0):
        assert authenticated("mst_short") is None
        assert text[10] == text[11] or authenticated(swapped) is None


# --- ends ----------------------------------------------------------------------------------------


def test_revoked_token_is_refused_and_keeps_its_first_end(owner):
    token, text = create(owner)
    tokens.revoke(token, by=ROOT, now=NOW)
    tokens.revoke(token, by=ROOT, now=NOW + timedelta(hours=1))
    assert authenticated(text) is None
    token.refresh_from_db()
    assert token.revoked_at == NOW


def test_token_is_refused_from_the_moment_it_expires(owner):
    _, text = create(owner, lifetime=timedelta(days=1))
    assert authenticated(text, now=NOW + timedelta(hours=23, minutes=59))
    assert authenticated(text, now=NOW + timedelta(days=1)) is None


def test_token_lives_for_90_days_and_at_most_366(owner):
    assert create(owner)[0].expires_at == NOW + timedelta(days=90)
    create(owner, "long", lifetime=timedelta(days=366))
    with pytest.raises(tokens.InvalidToken, match="366 days"):
        create(owner, "longer", lifetime=timedelta(days=366, seconds=1))


def test_disabling_the_owner_refuses_all_tokens_and_enabling_accepts_them_again(owner):
    _, text = create(owner)
    identities.disable(owner, by=ROOT, now=NOW)
    assert authenticated(text) is None
    owner.refresh_from_db()
    identities.enable(owner, by=ROOT)
    assert authenticated(text)


def test_token_of_a_person_ends_with_the_user():
    user = User.objects.create_user("ada")
    _, text = create(identities.of_user("ada", now=NOW), "laptop")
    known = authenticated(text)
    assert known is not None
    assert (known.actor, known.identity) == ("ada/laptop", "user:ada")
    user.is_active = False
    user.save()
    assert authenticated(text) is None


def test_disabled_owner_gets_no_new_token(owner):
    identities.disable(owner, by=ROOT, now=NOW)
    owner.refresh_from_db()
    with pytest.raises(tokens.InvalidToken, match="disabled"):
        create(owner)


def test_token_of_disabled_owner_is_not_rotated(owner):
    token, _ = create(owner)
    identities.disable(owner, by=ROOT, now=NOW)
    owner.refresh_from_db()
    token.identity = owner
    with pytest.raises(tokens.InvalidToken, match="disabled"):
        tokens.rotate(token, by=ROOT, now=NOW)


# --- rotation ------------------------------------------------------------------------------------


def test_both_texts_pass_for_the_overlap_and_then_one(owner):
    token, old = create(owner)
    _, new = tokens.rotate(token, by=ROOT, now=NOW, overlap=timedelta(hours=1))
    within, after = NOW + timedelta(minutes=59), NOW + timedelta(hours=1)
    assert authenticated(old, now=within)
    assert authenticated(new, now=within)
    assert authenticated(old, now=after) is None
    assert authenticated(new, now=after)


def test_rotation_keeps_what_the_token_is(owner):
    token, _ = create(
        owner,
        only=[given("viewer")],
        networks=["10.0.0.0/8"],
        lifetime=timedelta(days=7),
    )
    later = NOW + timedelta(days=5)
    new, text = tokens.rotate(token, by=ROOT, now=later)
    assert (new.name, new.identity, new.networks) == ("ci", owner, ["10.0.0.0/8"])
    assert new.expires_at == later + timedelta(days=7)
    known = authenticated(text, now=later, address="10.1.1.1")
    assert known is not None
    assert not known.reach("executions.run")


def test_overlap_does_not_outlive_the_token(owner):
    token, old = create(owner, lifetime=timedelta(minutes=30))
    tokens.rotate(token, by=ROOT, now=NOW, overlap=timedelta(hours=1))
    assert authenticated(old, now=NOW + timedelta(minutes=30)) is None


def test_at_most_two_texts_pass_at_a_time(owner):
    token, first = create(owner)
    second_token, second = tokens.rotate(token, by=ROOT, now=NOW)
    _, third = tokens.rotate(second_token, by=ROOT, now=NOW)
    assert [bool(authenticated(text)) for text in (first, second, third)] == [False, True, True]


def test_what_is_not_in_use_is_not_rotated(owner):
    token, _ = create(owner)
    tokens.rotate(token, by=ROOT, now=NOW)
    token.refresh_from_db()
    with pytest.raises(tokens.NotInUse, match="rotated"):
        tokens.rotate(token, by=ROOT, now=NOW)
    assert ApiToken.objects.filter(revoked_at=None).count() == 2


def test_rotation_that_comes_second_says_that_it_is_rotated(owner):
    token, _ = create(owner)
    as_read_before = ApiToken.objects.get(pk=token.pk)
    tokens.rotate(token, by=ROOT, now=NOW)
    with pytest.raises(tokens.NotInUse, match="is rotated"):
        tokens.rotate(as_read_before, by=ROOT, now=NOW)


def test_revoking_ends_both_texts(owner):
    token, old = create(owner)
    _, new = tokens.rotate(token, by=ROOT, now=NOW)
    assert tokens.revoke(token, by=ROOT, now=NOW) == 2
    assert authenticated(old) is None
    assert authenticated(new) is None


def test_revoking_a_token_spares_that_of_another_owner_who_has_its_name(owner):
    expired, _ = create(owner, lifetime=timedelta(minutes=1))
    tokens.rotate(expired, by=ROOT, now=NOW)
    later = NOW + timedelta(days=1)
    other = principals.service("other", given("operator"))
    _, text = tokens.create(name="ci", owner=other, by=ROOT, now=later)
    assert tokens.revoke(expired, by=ROOT, now=later) == 1
    assert authenticated(text, now=later)


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", " ci", "a\nb", "a\0b", "a" * 101])
def test_name_that_no_history_could_show_is_refused(owner, name):
    with pytest.raises(tokens.InvalidName):
        create(owner, name)


def test_name_in_use_is_taken_and_free_once_revoked_or_expired(owner):
    token, _ = create(owner, lifetime=timedelta(days=1))
    with pytest.raises(tokens.NameTaken, match="'ci'"):
        create(owner)
    tokens.revoke(token, by=ROOT, now=NOW)
    create(owner, lifetime=timedelta(seconds=1))
    tokens.create(name="ci", owner=owner, by=ROOT, now=NOW + timedelta(seconds=1))
    assert ApiToken.objects.filter(name="ci", revoked_at=None).count() == 1


# --- networks ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "is_accepted"),
    [
        ("10.2.3.4", True),
        ("::ffff:10.2.3.4", True),
        ("2001:db8::7", True),
        ("192.0.2.1", False),
        ("", False),
        ("unix", False),
    ],
)
def test_token_is_accepted_from_its_networks_only(owner, address, is_accepted):
    _, text = create(owner, networks=["10.0.0.0/8", "2001:db8::/32"])
    assert bool(authenticated(text, address=address)) is is_accepted


@pytest.mark.parametrize("network", ["10.0.0.1/8", "example.org", "10.0.0.0/33", ""])
def test_network_that_is_none_is_refused(owner, network):
    with pytest.raises(tokens.InvalidToken, match=r"such as 10\.1\.0\.0/16"):
        create(owner, networks=[network])


# --- what it may do ------------------------------------------------------------------------------


def test_token_may_do_what_its_owner_may_at_that_moment(owner):
    _, text = create(owner)
    before = authenticated(text)
    identities.revoke(owner, list(owner.grants.all()), by=ROOT)
    after = authenticated(text)
    assert before is not None
    assert after is not None
    assert before.reach("executions.run")
    assert not after.reach("executions.run")


def test_narrowed_token_may_do_less_than_its_owner(owner):
    _, text = create(owner, only=[given("executions.read", packs=["billing-*"])])
    known = authenticated(text)
    assert known is not None
    reach = known.reach("executions.read")
    assert reach.covers(Place(PACKS, "billing-eu"))
    assert not reach.covers(Place(PACKS, "core"))
    assert not known.reach("executions.run")


def test_narrowed_token_never_reaches_further_than_its_owner():
    owner = principals.service("shop", given("operator", packs=["shop"]))
    _, text = create(owner, "shop", only=[given("operator", packs=["*"])])
    known = authenticated(text)
    assert known is not None
    assert known.reach("executions.run").covers(Place(PACKS, "shop"))
    assert not known.reach("executions.run").covers(Place(PACKS, "core"))


def test_token_with_what_its_owner_lacks_is_refused(owner):
    with pytest.raises(tokens.InvalidToken, match=r"service:ci has no .*, which admin gives"):
        create(owner, only=[given("admin")])


def test_nobody_makes_a_token_that_may_do_more_than_themselves(owner):
    manager = principals.principal(given("tokens.manage"), given("viewer"))
    values: dict[str, Any] = {"name": "x", "owner": owner, "by": manager, "now": NOW}
    with pytest.raises(PermissionMissing, match=r"A token with operator needs the permission"):
        tokens.create(**values)
    assert tokens.create(**values, only=[given("viewer")])
    token, _ = create(owner)
    with pytest.raises(PermissionMissing):
        tokens.rotate(token, by=manager, now=NOW)


# --- cost ----------------------------------------------------------------------------------------


def test_recognising_with_three_grants_is_one_query_once_the_use_was_noted(
    owner, django_assert_num_queries
):
    for pack in ("shop", "billing-*"):
        identities.grant(owner, given("author", packs=[pack]), by=ROOT, now=NOW)
    _, text = create(owner)
    authenticated(text)
    with django_assert_num_queries(1):
        known = authenticated(text, now=NOW + timedelta(seconds=59))
    assert known is not None
    assert len(known.layers[0]) == 3


def test_last_use_is_noted_once_a_minute(owner):
    token, text = create(owner)
    noted = []
    for seconds in (0, 59, 60, 61):
        authenticated(text, now=NOW + timedelta(seconds=seconds))
        token.refresh_from_db()
        noted.append(token.last_used_at)
    later = NOW + timedelta(seconds=60)
    assert noted == [NOW, NOW, later, later]


# --- the command ---------------------------------------------------------------------------------


def test_create_writes_only_the_text_to_stdout(capsys: pytest.CaptureFixture[str]):
    out = run("create", "ci")
    err = capsys.readouterr().err
    token = ApiToken.objects.get(name="ci")
    assert tokens.of_text(out.strip()) == token
    assert str(token.identity) == "service:ci"
    assert "not shown again" in err
    assert "It may do nothing yet: manage.py access grant service:ci ROLE" in err


def test_create_for_an_owner_with_a_grant_says_nothing_of_grants(
    owner, capsys: pytest.CaptureFixture[str]
):
    run("create", "nightly", "--owner", "service:ci")
    assert "may do nothing" not in capsys.readouterr().err
    assert ApiToken.objects.get(name="nightly").identity == owner


def test_create_with_json_gives_text_and_end(owner):
    made = document("create", "ci", "--expires-in-days", "2", "--network", "10.0.0.0/8")
    token = ApiToken.objects.get(name="ci")
    assert token.expires_at == token.created_at + timedelta(days=2)
    assert made["networks"] == ["10.0.0.0/8"]
    assert tokens.of_text(made["token"]) == token


def test_create_narrows_the_token(owner):
    run("create", "ci", "--only", "executions.run", "--pack", "billing-*", "--pack", "core")
    token = ApiToken.objects.get(name="ci")
    assert token.grants == [{"gives": "executions.run", "scope": {"packs": ["billing-*", "core"]}}]
    assert "--only" in refused("create", "other", "--pack", "core")
    assert "did you mean operator?" in refused("create", "other", "--only", "operater")


@pytest.mark.parametrize("days", ["0", "-1", "nan", "soon", "1e99", "367"])
def test_create_refuses_days_that_are_none(days):
    assert "expected days above 0" in refused("create", "ci", "--expires-in-days", days)
    assert not ApiToken.objects.exists()


def test_create_leaves_nothing_when_it_is_refused(owner):
    assert "no user and no service" in refused("create", "x", "--owner", "service:y").lower()
    assert "such as 10.1.0.0/16" in refused("create", "new", "--network", "nowhere")
    assert not ApiToken.objects.exists()
    assert not Identity.objects.filter(service_name="new").exists()


def test_list_shows_states_and_no_text(owner):
    create(owner, "running", lifetime=timedelta(days=366))
    gone, _ = create(owner, "gone")
    tokens.revoke(gone, by=ROOT, now=NOW)
    create(owner, "over", lifetime=timedelta(seconds=1))
    found = {row["name"]: row["state"] for row in items("list")}
    assert found == {"running": "usable", "gone": "revoked", "over": "expired"}
    table = run("list")
    assert all(name in table for name in found)


def test_list_says_what_to_do_when_there_is_none():
    assert "token create NAME" in run("list")


def test_rotate_gives_a_new_text(owner, capsys: pytest.CaptureFixture[str]):
    old = run("create", "ci").strip()
    new = run("rotate", "ci", "--overlap", "30m").strip()
    row, former = tokens.of_text(new), tokens.of_text(old)
    assert row is not None
    assert former is not None
    assert former.superseded_at is not None
    assert former.expires_at == former.superseded_at + timedelta(minutes=30)
    assert "The old text is accepted until" in capsys.readouterr().err
    assert "expected a duration such as 30m" in refused("rotate", "ci", "--overlap", "soon")
    assert "No token is called 'nobody'" in refused("rotate", "nobody")


def test_revoke_refuses_the_token(owner):
    _, text = create(owner)
    assert "ci is revoked" in run("revoke", "ci")
    assert authenticated(text) is None


def test_revoke_says_when_there_is_nothing_to_revoke(owner):
    assert "No token is called" in refused("revoke", "ci")
    create(owner)
    run("revoke", "ci")
    assert "was revoked at" in refused("revoke", "ci")


def test_permission_that_no_app_brings_is_no_grant():
    with pytest.raises(grants.InvalidGrant, match=r"did you mean executions\.run\?"):
        given("executions.rum")
