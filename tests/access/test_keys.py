"""Keys are sealed, opened for those who may have them, and returned to nobody."""

from __future__ import annotations

import base64
import dataclasses
import stat
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import IntegrityError, connection

from orchestrator.access import checks, identities, keyring, keys
from orchestrator.access.authorizer import AtTerminal, Identified
from orchestrator.access.keys import Reference, Ring, sealing
from orchestrator.access.models import Key
from orchestrator.core import keyholder
from orchestrator.core.authority import PermissionMissing
from orchestrator.core.keyholder import Wanted
from tests import races
from tests.factories import NOW, make_action
from tests.principals import given, principal, service

pytestmark = pytest.mark.django_db

VALUE = "sk_live_0123456789"
OTHER = "sk_live_another_one"
STRIPE = Reference("pack", "billing", "stripe")
ADA, BOB = AtTerminal("ada"), AtTerminal("bob")
CHARGE = Wanted("billing/stripe", "billing.charge", 7)


def create(text: str = "billing/stripe", value: str = VALUE, **values: Any) -> Key:
    reference = Reference.read(text, user=values.pop("user", ""))
    new = keys.NewKey(reference=reference, value=value, **values)
    return keys.create(new, by=ADA, now=NOW)


def opened(wanted: Wanted = CHARGE) -> keyholder.Opened:
    return keyholder.holder().open([wanted])[wanted]


def refusal(wanted: Wanted = CHARGE) -> str:
    """The same at the request and at the claim."""
    at_request = keyholder.holder().refusals([wanted]).get(wanted, "")
    at_claim = opened(wanted).refusal
    assert at_claim.lower() == (f"{at_request}.".lower() if at_request else "")
    return at_request


def test_created_key_is_opened_for_an_action_of_its_pack(billing: None) -> None:
    create()
    assert refusal() == ""
    assert opened() == keyholder.Opened(VALUE)


def test_row_has_nothing_of_the_value(billing: None) -> None:
    key = create()
    stored = b"".join(
        bytes(value) if isinstance(value, bytes | memoryview) else str(value).encode()
        for value in Key.objects.values_list().get(pk=key.pk)
    )
    for form in (VALUE, base64.b64encode(VALUE.encode()).decode(), VALUE.encode().hex()):
        assert form.encode() not in stored
    assert VALUE not in repr(keys.NewKey(reference=STRIPE, value=VALUE))
    assert VALUE not in repr(opened())


@pytest.mark.parametrize(
    ("text", "values", "reaches", "not_reached"),
    [
        ("billing/stripe", {}, ["billing.charge"], ["mail.send", "billings.charge"]),
        (
            "installation/smtp",
            {"packs": ["mail", "bill*"]},
            ["mail.send", "billing.charge", "billings.x"],
            ["mailing.send", "core.echo"],
        ),
        ("installation/any", {"packs": ["*"]}, ["core.echo", "billing.charge"], []),
    ],
)
def test_key_reaches_its_packs(
    billing: None, text: str, values: dict[str, Any], reaches: list[str], not_reached: list[str]
) -> None:
    create(text, **values)
    for ref in reaches:
        assert opened(Wanted(text, ref, 7)).value == VALUE
    for ref in not_reached:
        assert refusal(Wanted(text, ref, 7)) == f"there is no key {text} that {ref} may get"


def test_key_of_a_user_reaches_what_that_user_requests(billing: None) -> None:
    ada, bob = service("ada"), service("bob")
    create("user/github", user="service:ada")
    create("user/github", value=OTHER, user="service:bob")
    assert opened(Wanted("user/github", "core.echo", ada.pk)).value == VALUE
    assert opened(Wanted("user/github", "core.echo", bob.pk)).value == OTHER
    for stranger in (0, ada.pk + bob.pk + 1):
        assert refusal(Wanted("user/github", "core.echo", stranger)).startswith("there is no key")
    identities.disable(ada, by=ADA, now=NOW)
    assert refusal(Wanted("user/github", "core.echo", ada.pk)).startswith("there is no key")


def test_unknown_key_and_one_out_of_reach_get_the_same_answer(billing: None) -> None:
    create()
    out_of_reach = refusal(Wanted("billing/stripe", "mail.send", 7))
    unknown = refusal(Wanted("billing/other", "mail.send", 7))
    assert out_of_reach.replace("stripe", "other") == unknown


def test_rotated_key_has_its_new_value_and_not_the_old_one(billing: None) -> None:
    create()
    key = keys.rotate(STRIPE, value=OTHER, by=BOB, now=NOW + timedelta(1))
    assert opened().value == OTHER
    assert (key.version, key.changed_by, key.created_by) == (2, "bob", "ada")


def test_revoked_key_is_destroyed_and_says_so(billing: None) -> None:
    create()
    key = keys.revoke(STRIPE, by=BOB, now=NOW)
    key.refresh_from_db()
    assert (bytes(key.content), bytes(key.data_key), key.ring_id) == (b"", b"", "")
    assert refusal() == "the key billing/stripe was revoked"
    for verb in (lambda: keys.revoke(STRIPE, by=BOB, now=NOW), lambda: keys.find(STRIPE, by=BOB)):
        with pytest.raises(keys.UnknownKey):
            verb()


def test_name_of_a_revoked_key_is_free_again(billing: None) -> None:
    create()
    with pytest.raises(keys.KeyExists, match="rotate it, or revoke it"):
        create()
    keys.revoke(STRIPE, by=BOB, now=NOW)
    create(value=OTHER)
    assert opened().value == OTHER
    assert Key.objects.count() == 2


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("value", {"value": "short"}),
        ("value", {"value": " " * 5 + "seven77" + " " * 5}),
        ("value", {"value": "nul\0 in it, long"}),
        ("value", {"value": "half \ud800 of a pair"}),
        ("value", {"value": "x" * 65_537}),
        ("packs", {"packs": ["billing"]}),
        ("packs", {"text": "installation/x"}),
        ("packs", {"text": "installation/x", "packs": ["Mail"]}),
        ("reference", {"text": "nopack/x"}),
        ("reference", {"text": "user/x"}),
        ("description", {"description": "x" * 201}),
        ("description", {"description": "\x1b[31m"}),
    ],
)
def test_wrong_key_is_refused_without_being_quoted(
    billing: None, field: str, change: dict[str, Any]
) -> None:
    with pytest.raises(keys.InvalidKey) as error:
        create(**change)
    assert error.value.field == field
    assert change.get("value", VALUE) not in str(error.value)
    assert not Key.objects.exists()


@pytest.mark.parametrize("text", ["stripe", "Billing/stripe", "a/b/c", "a/", "/b", "a/b ", "a/b\n"])
def test_text_that_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(keys.InvalidReference, match="expected an owner and a name"):
        Reference.read(text, user="ada")


def test_pack_with_the_name_of_a_scope_has_no_keys(ring_file: Path) -> None:
    make_action("user.greet")
    assert Reference.read("user/x", user="ada").scope == "user"
    with pytest.raises(keys.InvalidKey):
        keys.create(
            keys.NewKey(reference=Reference("pack", "user", "x"), value=VALUE), by=ADA, now=NOW
        )


def test_database_refuses_a_second_usable_key_and_a_revoked_one_with_content(
    billing: None,
) -> None:
    key = create()
    key.pk = None
    with pytest.raises(IntegrityError):
        key.save(force_insert=True)


# --- who may change them --------------------------------------------------------------------------


AUTHOR = principal(given("author", packs=["billing"]), actor="author")
OPERATOR = principal(given("operator"), actor="operator")


def names(by: Any) -> list[str]:
    return [str(key) for key in Key.objects.visible_to(by)]


def test_keys_are_seen_within_reach(billing: None) -> None:
    make_action("mail.send")
    for text, packs in (("billing/a", []), ("mail/b", []), ("installation/c", ["*"])):
        create(text, packs=packs)
    create("user/d", user="service:ada")
    ada = Identified("token", 5, layers=((given("author", packs=["mail"]),),),
                     identity="service:ada")  # fmt: skip
    assert names(AUTHOR) == ["billing/a"]
    assert names(ada) == ["mail/b", "user/d"]
    assert names(OPERATOR) == names(ADA) == ["installation/c", "billing/a", "mail/b", "user/d"]
    assert names(principal(given("viewer"))) == []


def test_author_changes_the_keys_of_own_packs(billing: None) -> None:
    make_action("mail.send")
    create("mail/b")
    key = keys.create(keys.NewKey(reference=STRIPE, value=VALUE), by=AUTHOR, now=NOW)
    assert key.created_by == "author"
    keys.rotate(STRIPE, value=OTHER, by=AUTHOR, now=NOW)
    other = Reference("pack", "mail", "b")
    with pytest.raises(keys.UnknownKey):
        keys.revoke(other, by=AUTHOR, now=NOW)
    with pytest.raises(keys.InvalidKey, match="no pack is called 'mail'"):
        keys.create(keys.NewKey(reference=other, value=VALUE), by=AUTHOR, now=NOW)
    new = keys.NewKey(reference=Reference("installation", "", "x"), value=VALUE, packs=["*"])
    with pytest.raises(PermissionMissing, match=r"keys\.manage"):
        keys.create(new, by=AUTHOR, now=NOW)


def test_who_only_sees_a_key_does_not_change_it(billing: None) -> None:
    create()
    for verb in (
        lambda: keys.rotate(STRIPE, value=OTHER, by=OPERATOR, now=NOW),
        lambda: keys.revoke(STRIPE, by=OPERATOR, now=NOW),
        lambda: keys.find(STRIPE, by=OPERATOR),
    ):
        with pytest.raises(PermissionMissing):
            verb()
    assert opened().value == VALUE


# --- sealing -------------------------------------------------------------------------------------


def _sealed(value: str = VALUE) -> tuple[sealing.Sealed, Ring]:
    held = Ring.to_seal()
    return sealing.seal(value, of=STRIPE, ring=held), held


def test_sealed_value_is_opened_under_any_key_of_the_ring(ring_file: Path) -> None:
    sealed, _ = _sealed()
    first = Ring.read().first
    added = keyring.add()
    held = Ring.read()
    assert held.first == added
    assert list(held.keys) == [added, first]
    assert sealing.opened(sealed, of=STRIPE, ring=held) == VALUE
    assert sealing.seal(VALUE, of=STRIPE, ring=held).ring_id == added


@pytest.mark.parametrize("change", ["scope", "owner", "name"])
def test_sealed_value_is_bound_to_its_owner_and_name(ring_file: Path, change: str) -> None:
    sealed, held = _sealed()
    other = dataclasses.replace(STRIPE, **{change: "other"})
    with pytest.raises(sealing.CannotOpen, match="was changed in the database"):
        sealing.opened(sealed, of=other, ring=held)


@pytest.mark.parametrize("part", ["data_key", "content"])
@pytest.mark.parametrize("at", [0, 13, -1])
def test_change_of_one_bit_is_noticed(ring_file: Path, part: str, at: int) -> None:
    sealed, held = _sealed()
    content = bytearray(getattr(sealed, part))
    content[at] ^= 1
    for changed in (bytes(content), b"", bytes(content[:11])):
        changes: dict[str, Any] = {part: changed}
        with pytest.raises(sealing.CannotOpen, match="was changed in the database"):
            sealing.opened(dataclasses.replace(sealed, **changes), of=STRIPE, ring=held)


def test_content_of_one_row_in_another_is_refused(billing: None) -> None:
    create()
    create("billing/paypal", value=OTHER)
    paypal = Key.objects.get(name="paypal")
    Key.objects.filter(name="stripe").update(
        content=bytes(paypal.content), data_key=bytes(paypal.data_key)
    )
    assert opened().refusal == (
        "The key billing/stripe was changed in the database and cannot be opened."
    )


def test_no_two_rows_share_a_data_key_or_a_nonce(ring_file: Path) -> None:
    one, _ = _sealed()
    two, _ = _sealed()
    assert one.data_key[:12] != two.data_key[:12]
    assert one.content[:12] != two.content[:12]
    assert one.content[12:] != two.content[12:]


def test_reseal_changes_the_ring_key_and_not_the_value(billing: None) -> None:
    create()
    create("billing/paypal", value=OTHER)
    before = bytes(Key.objects.get(name="stripe").content)
    added = keyring.add()
    assert keys.reseal(ring=Ring.read()) == (2, [])
    assert keys.reseal(ring=Ring.read()) == (0, [])
    assert set(Key.objects.values_list("ring_id", flat=True)) == {added}
    assert bytes(Key.objects.get(name="stripe").content) == before
    # the old key of the ring is no longer needed
    file = keyring.path()
    file.write_text("\n".join(file.read_text().splitlines()[:1]) + "\n")
    assert opened().value == VALUE


def test_reseal_says_what_it_cannot_open(billing: None) -> None:
    create()
    create("billing/paypal", value=OTHER)
    keyring.add()
    Key.objects.filter(name="stripe").update(data_key=b"x" * 60)
    done, faults = keys.reseal(ring=Ring.read())
    assert done == 1
    assert faults == ["The key billing/stripe was changed in the database and cannot be opened"]


# --- the ring ------------------------------------------------------------------------------------


def test_embedded_installation_makes_its_ring_when_it_seals(billing: None, ring_file: Path) -> None:
    with pytest.raises(keys.RingFault, match="set MUSTER_KEYRING"):
        Ring.read()
    create()
    assert stat.S_IMODE(ring_file.stat().st_mode) == 0o600
    assert len(Ring.read().keys) == 1


def test_named_ring_is_never_made(billing: None, ring_file: Path, settings: Any) -> None:
    named = ring_file.with_name("elsewhere")
    settings.MUSTER = dataclasses.replace(settings.MUSTER, keyring=str(named))
    with pytest.raises(keys.RingFault, match="there is no such file"):
        create()
    assert not named.exists()
    keyring.add()
    create()
    assert opened().value == VALUE


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "has no key in it"),
        (b"# only a comment\n", "has no key in it"),
        (b"c2hvcnQ=\n", "line 1: expected 32 bytes in base64"),
        (b"# fine\n" + base64.b64encode(b"x" * 32) + b"\nnot base64!\n", "line 3: expected"),
        (b"\xff\xfe", "it is no text"),
    ],
)
def test_wrong_ring_is_a_clear_error_that_quotes_nothing(
    billing: None, ring_file: Path, content: bytes, fault: str
) -> None:
    create()
    ring_file.write_bytes(content)
    with pytest.raises(keys.RingFault, match=fault):
        Ring.read()
    assert fault in opened().refusal
    assert "not base64" not in opened().refusal
    (message,) = checks.check_keyring()
    assert fault in message.msg


def test_ring_without_the_key_of_a_row_says_which_is_missing(
    billing: None, ring_file: Path
) -> None:
    sealed_under = create().ring_id
    ring_file.write_text(base64.b64encode(b"x" * 32).decode())
    assert opened().refusal == (
        f"The key billing/stripe is sealed under the ring's key {sealed_under}, which is not in "
        "MUSTER_KEYRING here."
    )


def test_ring_that_is_gone_refuses_everything(billing: None, ring_file: Path) -> None:
    create()
    ring_file.unlink()
    assert "There is no ring" in opened().refusal


def test_check_warns_of_a_ring_that_others_read(ring_file: Path) -> None:
    assert checks.check_keyring() == []
    Ring.to_seal()
    assert checks.check_keyring() == []
    ring_file.chmod(0o640)
    (warning,) = checks.check_keyring()
    assert warning.id == "muster.W010"
    assert "0640" in warning.msg


def test_several_processes_make_one_ring(ring_file: Path) -> None:
    assert connection.vendor == "sqlite"
    made = races.at_once(*[lambda: Ring.to_seal().first] * 8)
    assert len(set(made)) == 1
