"""Signatures: those of each sender's documentation, and everything that is not one of them."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.automation.hooks import profiles, texts
from orchestrator.automation.hooks.deliveries import Delivery, NotSigned, TooOld, Unreadable
from orchestrator.automation.hooks.schemes import LONGEST_ID, Scheme, UnusableSecret
from tests.automation.hooks import vectors
from tests.automation.hooks.vectors import AT, Vector, mac

OTHER = "another-secret-of-a-test"


def scheme_of(vector: Vector) -> Scheme:
    scheme = profiles.of(vector.parameters)
    assert scheme is not None
    return scheme


def verify(vector: Vector, delivery: Delivery, *secrets: str, **later: float) -> None:
    now = vector.at + timedelta(**later)
    scheme_of(vector).verify(delivery, secrets or [vector.secret], now=now)


def parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


def flipped(text: str, at: int) -> str:
    """The text with one bit wrong, at a place that is not only the case of a letter."""
    return text[:at] + chr(ord(text[at]) ^ 1) + text[at + 1 :]


@pytest.mark.parametrize("vector", vectors.ALL, ids=str)
def test_signature_of_the_documentation_is_valid(vector: Vector) -> None:
    verify(vector, vector.delivery())
    assert scheme_of(vector).key(vector.delivery(), parsed(vector.body)) == vector.key


@pytest.mark.parametrize("vector", vectors.ALL, ids=str)
def test_signature_with_one_bit_wrong_is_refused(vector: Vector) -> None:
    right = vector.headers[vector.signature]
    # the time of Stripe's is in the same header, and another scheme after it
    end = right.find(",v0=") if ",v0=" in right else len(right.rstrip("="))
    for at in range(right.find("v1=") + 1, end):
        with pytest.raises((NotSigned, TooOld)):
            verify(vector, vector.delivery(**{vector.signature: flipped(right, at)}))


@pytest.mark.parametrize("vector", vectors.SIGNED, ids=str)
def test_body_with_one_bit_wrong_is_refused(vector: Vector) -> None:
    for at in range(len(vector.body)):
        changed = bytearray(vector.body)
        changed[at] ^= 1
        with pytest.raises(NotSigned):
            verify(vector, Delivery(headers=vector.headers, body=bytes(changed)))


@pytest.mark.parametrize("vector", vectors.ALL, ids=str)
@pytest.mark.parametrize("value", ["", "x", "sha256=", "v0=", "v1,", "t=,v1=", "é", "\0", "v1:"])
def test_signature_that_is_missing_or_none_is_refused(vector: Vector, value: str) -> None:
    with pytest.raises(NotSigned):
        verify(vector, vector.delivery(**{vector.signature: value}))


@pytest.mark.parametrize("vector", vectors.ALL, ids=str)
def test_signature_with_another_secret_is_refused(vector: Vector) -> None:
    other = "whsec_YW5vdGhlciBzZWNyZXQgb2YgYSB0ZXN0" if vector.profile == "standard" else OTHER
    with pytest.raises(NotSigned):
        verify(vector, vector.delivery(), other)
    with pytest.raises(NotSigned):
        verify(vector, vector.delivery(), other, other)


@pytest.mark.parametrize("vector", vectors.ALL, ids=str)
def test_either_of_two_secrets_is_valid(vector: Vector) -> None:
    other = "whsec_YW5vdGhlciBzZWNyZXQgb2YgYSB0ZXN0" if vector.profile == "standard" else OTHER
    verify(vector, vector.delivery(), other, vector.secret)
    verify(vector, vector.delivery(), vector.secret, other)


@pytest.mark.parametrize("vector", vectors.TIMED, ids=str)
@pytest.mark.parametrize(
    ("seconds", "is_valid"), [(300, True), (-300, True), (302, False), (-302, False)]
)
def test_signature_of_another_time_is_refused(
    vector: Vector, seconds: float, is_valid: bool
) -> None:
    if is_valid:
        verify(vector, vector.delivery(), seconds=seconds)
        return
    with pytest.raises(TooOld):
        verify(vector, vector.delivery(), seconds=seconds)


@pytest.mark.parametrize("text", ["", "now", "1e9", "-5", "٣", "1" * 13, "1531420618.0", " "])
def test_time_that_is_no_number_of_seconds_is_refused_though_it_is_signed(text: str) -> None:
    vector = vectors.SLACK
    signature = "v0=" + mac(vector.secret, b"v0:" + text.strip().encode() + b":" + vector.body)
    changed = {"x-slack-request-timestamp": text, "x-slack-signature": signature}
    with pytest.raises((TooOld, NotSigned)):
        verify(vector, vector.delivery(**changed))


@pytest.mark.parametrize("vector", vectors.ALL, ids=str)
def test_what_is_signed_here_is_valid_here(vector: Vector) -> None:
    scheme = scheme_of(vector)
    body = b'{"id": "evt_2", "number": 7}'
    headers = scheme.sign(body, vector.secret, now=AT, id="delivery-1")
    delivery = Delivery(headers={k.lower(): v for k, v in headers.items()}, body=body)
    scheme.verify(delivery, [vector.secret], now=AT)
    assert scheme.key(delivery, parsed(body))


def test_senders_that_rotate_send_several_signatures() -> None:
    for vector, mark in ((vectors.STANDARD, " v1,"), (vectors.STRIPE, ",v1=")):
        right = vector.headers[vector.signature]
        several = right + mark + "AAAA" if vector.profile == "standard" else right + mark + "ab"
        verify(vector, vector.delivery(**{vector.signature: several}))
    many = "v1,AAAA " * 1_000 + vectors.STANDARD.headers["webhook-signature"]
    with pytest.raises(NotSigned):
        verify(vectors.STANDARD, vectors.STANDARD.delivery(**{"webhook-signature": many}))


def test_two_times_in_the_header_of_stripe_are_none() -> None:
    vector = vectors.STRIPE
    doubled = f"t=1,{vector.headers['stripe-signature']}"
    with pytest.raises(NotSigned):
        verify(vector, vector.delivery(**{"stripe-signature": doubled}))


def test_secret_in_a_wrong_form_can_have_signed_nothing() -> None:
    vector = vectors.STANDARD
    with pytest.raises(UnusableSecret):
        verify(vector, vector.delivery(), "no base64!")
    verify(vector, vector.delivery(), "no base64!", vector.secret)
    verify(vector, vector.delivery(), vector.secret.removeprefix("whsec_"))


@pytest.mark.parametrize(
    "secret", ["whsec_", "whsec_    ", "    ", "whsec_AA==", "whsec_" + "A" * 20]
)
def test_secret_without_enough_bytes_can_have_signed_nothing(secret: str) -> None:
    """With an empty one, whoever knows that could sign."""
    vector = vectors.STANDARD
    content = b"%s.%s.%s" % (
        vector.headers["webhook-id"].encode(), vector.headers["webhook-timestamp"].encode(),
        vector.body,
    )  # fmt: skip
    key = base64.b64decode(secret.strip().removeprefix("whsec_"))
    signature = base64.b64encode(hmac.digest(key, content, "sha256")).decode()
    forged = vector.delivery(**{"webhook-signature": f"v1,{signature}"})
    with pytest.raises(UnusableSecret):
        verify(vector, forged, secret)
    with pytest.raises(NotSigned):
        verify(vector, forged, secret, vector.secret)


def test_repetition_that_slack_signs_again_has_the_same_key() -> None:
    scheme = scheme_of(vectors.SLACK)
    body = {"type": "event_callback", "event_id": "Ev0PV52K25"}
    for timestamp in ("1531420618", "1531420918"):
        delivery = Delivery(headers={"x-slack-request-timestamp": timestamp}, body=b"...")
        assert scheme.key(delivery, body) == "Ev0PV52K25"


def test_event_of_gitlab_without_an_idempotency_key_has_that_of_older_releases() -> None:
    scheme, headers = scheme_of(vectors.GITLAB), dict(vectors.GITLAB.headers)
    del headers["idempotency-key"]
    older = scheme.key(Delivery(headers=headers, body=b""), None)
    assert older == headers["x-gitlab-event-uuid"]


def test_id_that_is_not_signed_does_not_make_a_replay_another_event() -> None:
    """A recorded delivery with another id, within the time in which its signature is valid."""
    template = {
        "header": "x-sig", "signed": "{timestamp}.{body}", "timestamp_header": "x-time",
        "id_header": "x-id",
    }  # fmt: skip
    scheme = profiles.of({"profile": "hmac", "hmac": template})
    assert scheme is not None
    keys = {
        scheme.key(Delivery(headers={"x-time": "5", "x-id": id}, body=b"a"), None)
        for id in ("one", "two")
    }
    assert len(keys) == 1


@pytest.mark.parametrize("id", ["", "x" * (LONGEST_ID + 1), "a\nb", "a\0b"])
def test_delivery_without_a_usable_id_is_refused(id: str) -> None:
    vector = vectors.GITHUB
    with pytest.raises(Unreadable):
        scheme_of(vector).key(vector.delivery(**{"x-github-delivery": id}), None)


@pytest.mark.parametrize("vector", vectors.ALL, ids=str)
@given(
    value=st.text(max_size=40),
    secrets=st.lists(st.text(max_size=9).map(lambda text: f"s{text}"), max_size=2),
)
def test_no_header_and_no_secret_breaks_the_check(
    vector: Vector, value: str, secrets: Sequence[str]
) -> None:
    with pytest.raises((NotSigned, TooOld, UnusableSecret)):
        verify(vector, vector.delivery(**{vector.signature: f"~{value}"}), *(secrets or ["x"]))


# --- the text that is signed ---------------------------------------------------------------------


def test_what_stands_in_a_place_is_not_read_again() -> None:
    parts = texts.split("{timestamp}.{body}")
    assert texts.filled(parts, {"timestamp": b"{body}", "body": b"{timestamp}"}) == (
        b"{body}.{timestamp}"
    )


@pytest.mark.parametrize(
    ("text", "is_usable"),
    [
        ("{body}", True),
        ("v0:{timestamp}:{body}", True),
        ("{id}.{timestamp}.{body}", True),
        ("{timestamp}", False),
        ("{body}{body}", False),
        ("{body}.{body}", False),
        ("{id}{body}", False),
        ("{url}.{body}", False),
        ("", False),
    ],
)
def test_text_that_is_ambiguous_is_refused(text: str, is_usable: bool) -> None:
    assert (not list(texts.faults(text))) is is_usable
