"""Deliveries over the API: signed before they are parsed, recorded once, refused with a reason."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from django.core.handlers.asgi import ASGIRequest
from django.db import OperationalError
from django.test import RequestFactory

from orchestrator.access.audit.models import AuditEvent
from orchestrator.automation import kept_keys, recording
from orchestrator.automation.api.hooks import admit
from orchestrator.automation.hooks import profiles
from orchestrator.automation.hooks.deliveries import NoSecret
from orchestrator.automation.models import DeliveryCount, Event
from orchestrator.automation.receiving import contents, counts, limits, steps
from orchestrator.core import clock
from orchestrator.core.api.access import address_of
from orchestrator.core.api.problems import Problem
from orchestrator.core.models import DLQEntry
from tests import principals
from tests.automation import play
from tests.automation.hooks import vectors
from tests.automation.hooks.sending import (
    GITHUB,
    NEXT,
    PUSH,
    SECRET,
    key,
    make_hook,
    revoke,
    send,
    signed,
)
from tests.automation.hooks.vectors import Vector
from tests.factories import make_action
from tests.principals import given


@pytest.fixture(autouse=True)
def shop(db: None, sent: Any, settings: Any, tmp_path: Path) -> None:
    """A pack that may have keys, and a ring."""
    settings.DATA_DIR = tmp_path
    make_action("shop.ship")


def kind(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["type"].rpartition(":")[2]


def outcomes() -> dict[str, int]:
    return dict(DeliveryCount.objects.values_list("outcome", "total"))


# --- taken ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_signed_delivery_is_an_event(method: str) -> None:
    key()
    hook = make_hook()
    answer = send(
        headers=signed(x_github_event="push", authorization="Bearer x", cookie="a=b"), method=method
    )
    assert answer.status_code == 202
    event = Event.objects.get()
    assert answer.json() == {"event_id": str(event.pk), "duplicate": False}
    assert (event.trigger_id, event.dedup_key) == (hook.trigger_id, "delivery-1")
    assert (event.source, event.sent_by, event.problem) == ("hook", "hook:github", "")
    assert event.payload == {
        "body": json.loads(PUSH),
        "headers": {
            "content-type": "application/json", "x-github-delivery": "delivery-1",
            "x-github-event": "push",
        },
    }  # fmt: skip
    assert outcomes() == {"accepted": 1}


def test_repetition_is_the_first_event_whatever_its_content() -> None:
    key()
    make_hook()
    first = send()
    again = send()
    other = send(b"{}", signed(b"{}"))
    assert [each.status_code for each in (first, again, other)] == [202, 200, 200]
    for repeated in (again, other):
        assert repeated.json() == {"event_id": first.json()["event_id"], "duplicate": True}
    assert Event.objects.count() == 1
    assert outcomes() == {"accepted": 1, "duplicate": 2}


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        (b"", "application/json", None),
        (b"", "", None),
        (b"[1, 2]", "application/json; charset=utf-8", [1, 2]),
        (b'"text"', "application/vnd.shop+json", "text"),
        (b"\xef\xbb\xbf{}", "application/json", {}),
        (b"payload=%7B%22a%22%3A1%7D", contents.FORM, {"a": 1}),
        (b"payload=plain", contents.FORM, {"payload": "plain"}),
        (b"payload=%7B%7D&b=1", contents.FORM, {"payload": "{}", "b": "1"}),
        (b"a=1&a=2&b=&c=%C3%A4+x", contents.FORM, {"a": ["1", "2"], "b": "", "c": "ä x"}),
    ],
)
def test_body_is_json_or_a_form(body: bytes, content_type: str, expected: Any) -> None:
    key()
    make_hook()
    assert send(body, content_type=content_type).status_code == 202
    assert Event.objects.get().payload["body"] == expected


@pytest.mark.parametrize("vector", vectors.ALL, ids=str)
def test_delivery_of_each_profile_is_taken(vector: Vector, monkeypatch: Any) -> None:
    key(vector.secret)
    play.make_trigger("core.webhook", **vector.parameters)
    monkeypatch.setattr(clock, "now", lambda: vector.at)
    headers = dict(vector.headers)
    content_type = headers.pop("content-type", "application/json")
    answer = send(vector.body, headers, path=vector.profile, content_type=content_type)
    # GitHub's documentation signs what is no JSON
    assert answer.status_code == (400 if vector.profile == "github" else 202), answer.content


def test_slack_is_answered_its_question(monkeypatch: Any) -> None:
    key()
    make_hook(path="slack", profile="slack")
    body = b'{"type": "url_verification", "challenge": "3eZbrw1aB"}'
    headers = profiles.OF_SENDERS["slack"].sign(body, SECRET, now=clock.now(), id="")
    answer = send(body, headers, path="slack")
    assert (answer.status_code, answer.json()) == (200, {"challenge": "3eZbrw1aB"})
    assert not Event.objects.exists()
    assert outcomes() == {"answered": 1}
    assert send(body, {}, path="slack").status_code == 401


# --- refused -------------------------------------------------------------------------------------


def test_body_of_a_stranger_is_never_parsed(monkeypatch: Any) -> None:
    key()
    make_hook()

    def parse(*_: Any) -> None:
        raise AssertionError("it was parsed")

    monkeypatch.setattr(contents, "_loaded", parse)
    monkeypatch.setattr(contents, "_of_form", parse)
    deep = b"[" * 500_000 + b"]" * 500_000
    for body in (deep, b"9" * 1_000_000, b"a=1&" * 250_000):
        for content_type in ("application/json", contents.FORM):
            began = time.process_time()
            assert kind(send(body, signed(b"another"), content_type=content_type)) == (
                401, "not-signed",
            )  # fmt: skip
            assert time.process_time() - began < 0.5
    assert not Event.objects.exists()
    assert outcomes() == {"unsigned": 6}


def test_signature_that_is_missing_wrong_or_doubled_is_refused() -> None:
    key()
    make_hook()
    right = signed()
    doubled = {**right, "x-hub-signature-256": f"{right['x-hub-signature-256']},sha256=00"}
    for headers in ({}, signed(secret=NEXT), {**right, "x-hub-signature-256": ""}, doubled):
        answer = send(headers=headers)
        assert kind(answer) == (401, "not-signed")
        assert answer["WWW-Authenticate"] == "Signature"
        assert SECRET not in answer.content.decode()


def test_signature_of_an_old_time_is_refused() -> None:
    key()
    make_hook(path="slack", profile="slack")
    scheme = profiles.OF_SENDERS["slack"]
    for minutes in (-6, 6):
        at = clock.now() + timedelta(minutes=minutes)
        assert kind(send(PUSH, scheme.sign(PUSH, SECRET, now=at, id=""), path="slack")) == (
            401, "too-old",
        )  # fmt: skip
    assert outcomes() == {"too_old": 2}


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b"{", "application/json", 400),
        (b"\xff", "application/json", 400),
        (b'{"a": NaN}', "application/json", 400),
        (b'{"a": 1e999}', "application/json", 400),
        (b'{"a": "\\u0000"}', "application/json", 400),
        (b'{"a": "\\ud800"}', "application/json", 400),
        (b"9" * 5_000, "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b"[" * 60 + b"]" * 60, "application/json", 400),
        (b"a=%00", contents.FORM, 400),
        (b"a=%FF", contents.FORM, 400),
        (b"a", contents.FORM, 400),
        ("ä=1".encode(), contents.FORM, 400),
        (b"a=1&" * 1_001 + b"a=1", contents.FORM, 400),
        (b"payload=%7B", contents.FORM, 400),
        (b"<a/>", "text/xml", 415),
        (b"{}", "", 415),
        (b"{}", "application/json+", 415),
        (b'"%s"' % (b"x" * 300_000), "application/json", 422),
    ],
)
def test_signed_body_that_cannot_be_read_is_refused(
    body: bytes, content_type: str, status: int
) -> None:
    key()
    make_hook()
    answer = send(body, content_type=content_type)
    assert answer.status_code == status, answer.content
    assert not Event.objects.exists()


def test_what_a_sender_writes_into_a_reason_can_be_stored() -> None:
    key()
    make_hook()
    assert send(content_type="text/\x00\udce4" + "x" * 300).status_code == 415
    assert outcomes() == {"unreadable": 1}


def test_body_beyond_the_limit_is_refused(settings: Any) -> None:
    key()
    make_hook()
    answer = send(b"x" * 1_048_577)
    assert kind(answer) == (413, "too-large")


def test_body_that_does_not_fit_the_schema_is_refused_or_kept() -> None:
    key()
    schema = {"type": "object", "properties": {"ref": {"type": "integer"}}}
    make_hook(schema=schema)
    answer = send()
    assert kind(answer) == (422, "invalid")
    assert [each["pointer"] for each in answer.json()["errors"]] == ["/body/ref"]
    make_hook(schema=schema, keep_invalid=True)
    assert send().status_code == 202
    event = Event.objects.get()
    assert "/body/ref" in event.problem
    assert (event.matched, event.evaluated_at is None) == (0, False)
    assert outcomes() == {"invalid": 1, "kept_invalid": 1}


# --- secrets -------------------------------------------------------------------------------------


def test_hook_without_a_secret_takes_nothing_and_is_investigated() -> None:
    hook = make_hook()
    for _ in range(3):
        answer = send()
        assert kind(answer) == (503, "no-secret")
        assert answer["Retry-After"] == "60"
        assert answer.json()["detail"] == NoSecret.__doc__  # and no name of a key, and no file
    entry = DLQEntry.objects.get()
    assert (entry.subject_kind, entry.subject_id, entry.subject_name) == (
        "webhook", hook.pk, "github",
    )  # fmt: skip
    assert "no secret of the hook can be opened" in entry.detail
    assert not Event.objects.exists()
    # as soon as there is one, it counts
    key()
    assert send().status_code == 202


def test_hook_whose_ring_is_gone_takes_nothing(settings: Any, tmp_path: Path) -> None:
    key()
    make_hook()
    settings.DATA_DIR = tmp_path / "nowhere"
    assert kind(send()) == (503, "no-secret")


def test_secret_in_the_wrong_form_takes_nothing() -> None:
    key("no base64 at all!")
    make_hook(path="standard", profile="standard", secrets=[{"$key": "shop/hook"}])
    headers = {"webhook-signature": "v1,AAAA", "webhook-id": "a", "webhook-timestamp": "1"}
    assert kind(send(PUSH, headers, path="standard")) == (503, "no-secret")


def test_rotation_refuses_no_delivery(monkeypatch: Any) -> None:
    """The next secret is added, the sender changes over, the first one is revoked: every delivery
    of a sender with a key of its time is taken at once."""
    key()
    make_hook()
    statuses = [send(headers=signed(id="a")).status_code]
    key(NEXT, "hook-next")
    for id, secret in (("b", NEXT), ("c", SECRET), ("d", NEXT)):
        statuses.append(send(headers=signed(id=id, secret=secret)).status_code)
    revoke()
    statuses.append(send(headers=signed(id="e", secret=NEXT)).status_code)
    assert statuses == [202] * 5
    # and the first one ends, with what this process has kept
    monkeypatch.setattr(kept_keys, "KEPT_SECONDS", -1.0)
    assert send(headers=signed(id="f")).status_code == 401
    # then the key of the first name gets the next value
    key("made-up-for-the-one-after")
    after = signed(id="g", secret="made-up-for-the-one-after")
    assert send(headers=after).status_code == 202


def test_secret_is_opened_once_for_each_version_and_audited() -> None:
    key()
    make_hook()
    for number in range(3):
        send(headers=signed(id=str(number)))
        send(headers=signed(secret=NEXT))
    opened = AuditEvent.objects.filter(permission="keys.open", decision="allowed")
    assert opened.count() == 1
    assert "shop.webhook" in opened.get().reason


def test_secret_is_not_opened_again_because_the_other_one_is_revoked(monkeypatch: Any) -> None:
    """As it is after each rotation, for good."""
    key()
    key(NEXT, "hook-next")
    make_hook()
    send(headers=signed(id="a"))
    revoke("hook-next")
    monkeypatch.setattr(kept_keys, "KEPT_SECONDS", -1.0)
    send(headers=signed(id="b"))
    opened = AuditEvent.objects.filter(permission="keys.open")
    before = opened.count()
    for number in range(4):
        assert send(headers=signed(id=str(number))).status_code == 202
        assert send(headers=signed(secret=NEXT)).status_code == 401
    assert opened.count() == before


# --- limits --------------------------------------------------------------------------------------


def test_deliveries_beyond_the_limit_are_refused_and_strangers_do_not_count(
    settings: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(steps, "buckets", limits.Buckets())
    changed = {**vars(settings.MUSTER), "hook_deliveries_per_minute": 12.0}
    settings.MUSTER = type(settings.MUSTER)(**changed)
    key()
    make_hook()
    for _ in range(20):
        assert send(headers=signed(secret=NEXT)).status_code == 401
    statuses = [send(headers=signed(id=str(n))).status_code for n in range(4)]
    assert statuses == [202, 202, 429, 429]
    answer = send()
    assert kind(answer) == (429, "too-many-requests")
    assert answer["Retry-After"] == "10"


def test_backlog_refuses_deliveries(monkeypatch: Any) -> None:
    key()
    make_hook()
    monkeypatch.setattr(recording._backlog, "look", lambda: True)
    answer = send()
    assert kind(answer) == (503, "too-many-events")
    assert answer["Retry-After"]
    assert outcomes() == {"busy": 1}


def test_backlog_at_its_limit_refuses_deliveries(settings: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(recording, "_backlog", recording._Backlog())
    monkeypatch.setattr(recording, "COUNTED_EVERY_SECONDS", -1.0)
    settings.MUSTER = replace(settings.MUSTER, events_backlog_limit=1)
    key()
    make_hook()
    statuses = [send(headers=signed(id=str(n))).status_code for n in range(3)]
    assert statuses == [202, 202, 503]
    assert Event.objects.count() == 2
    Event.objects.update(evaluated_at=clock.now(), matched=0)
    assert send(headers=signed(id="2")).status_code == 202


def test_database_that_is_away_asks_to_come_again(monkeypatch: Any) -> None:
    key()
    make_hook()

    def fail(*_: Any, **__: Any) -> None:
        raise OperationalError("the server closed the connection")

    monkeypatch.setattr(steps, "record_many", fail)
    answer = send()
    assert kind(answer) == (503, "database-unavailable")
    assert answer["Retry-After"]


# --- paths and addresses -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    ["nothing", "github/", "GitHub", "%C3%A4", "..%2Fgithub", "a%00b", "a" * 5_000, "%0Agithub"],
)
def test_unknown_path_is_not_found(path: str) -> None:
    make_hook()
    assert kind(send(path=path)) == (404, "not-found")


def test_unknown_path_costs_one_look_up(
    django_assert_num_queries: Any, still_clock: None, monkeypatch: Any
) -> None:
    make_hook()
    send(path="the-first")  # which is audited
    monkeypatch.setattr(counts.Counts, "_soon", lambda _: None)  # which a thread writes
    with django_assert_num_queries(1):
        send(path="nothing")
    with django_assert_num_queries(0):
        send(path="No Path")


def test_strangers_are_audited_once_a_minute_for_each_address() -> None:
    for address in ("192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.1"):
        for path in ("one", "two"):
            send(path=path, REMOTE_ADDR=address)
    rows = AuditEvent.objects.filter(permission="hooks.receive").order_by("address")
    assert [(row.address, row.object_id, row.actor_kind) for row in rows] == [
        ("192.0.2.1", "one", "stranger"), ("192.0.2.2", "one", "stranger"),
    ]  # fmt: skip


def test_forged_address_is_ignored() -> None:
    """uvicorn alone believes X-Forwarded-For, and of known proxies alone: see the scenarios."""
    send(path="one", REMOTE_ADDR="192.0.2.1", headers={"x-forwarded-for": "203.0.113.9"})
    assert AuditEvent.objects.get(permission="hooks.receive").address == "192.0.2.1"
    send(path="two", REMOTE_ADDR="127.0.0.1", headers={"x-forwarded-for": "203.0.113.9"})
    assert AuditEvent.objects.get(object_id="two").address == "127.0.0.1"
    make_hook()
    send(headers={"x-forwarded-for": "203.0.113.9"}, REMOTE_ADDR="192.0.2.1")
    assert DeliveryCount.objects.get().last_address == "192.0.2.1"


@pytest.mark.parametrize(
    ("trusted", "client", "address"),
    [
        ("", "127.0.0.1", ""),
        ("", "192.0.2.7", "192.0.2.7"),
        ("192.0.2.7", "127.0.0.1", ""),
        ("192.0.2.7", "192.0.2.7", "203.0.113.9"),
        (None, "127.0.0.1", "203.0.113.9"),
    ],
)
def test_address_that_a_proxy_forwards_is_believed_of_trusted_ones_alone(
    trusted: str | None, client: str, address: str, monkeypatch: Any
) -> None:
    """With an empty setting, of none: then nobody knows for whom a proxy of this host asks. Without
    the setting, of this host's."""
    monkeypatch.delenv("FORWARDED_ALLOW_IPS", raising=False)
    if trusted is not None:
        monkeypatch.setenv("FORWARDED_ALLOW_IPS", trusted)

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        seen.append(address_of(ASGIRequest(scope, BytesIO())))

    seen: list[str] = []
    config = uvicorn.Config(answer, interface="asgi3", log_config=None)
    config.load()
    scope = {
        "type": "http", "method": "POST", "path": "/api/v1/hooks/one", "query_string": b"",
        "client": (client, 5), "scheme": "http",
        "headers": [(b"x-forwarded-for", b"203.0.113.9")],
    }  # fmt: skip
    asyncio.run(config.loaded_app(scope, None, None))
    assert seen == [address]


def test_deliveries_are_no_lines_of_the_audit() -> None:
    key()
    make_hook()
    before = AuditEvent.objects.count()
    send()
    send(headers={})
    assert AuditEvent.objects.exclude(permission="keys.open").count() == before


# --- tokens --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "scope", "status"),
    [
        ("operator", {}, 202), ("viewer", {}, 403), ("operator", {"packs": ["shop"]}, 403),
        ("operator", {"packs": ["core"]}, 202),
    ],
)  # fmt: skip
def test_hook_for_tokens_asks_for_the_permission(
    role: str, scope: dict[str, Any], status: int
) -> None:
    play.make_trigger("core.webhook", path="free", profile="token")
    token = principals.token("sender", given(role, **scope))
    headers = {"authorization": f"Bearer {token}", "idempotency-key": "once"}
    answer = send(headers=headers, path="free")
    assert answer.status_code == status
    if status == 202:
        event = Event.objects.get()
        assert (event.dedup_key, event.sent_by) == ("once", "sender")
        assert send(headers=headers, path="free").json()["duplicate"] is True
        assert token not in json.dumps(event.payload)


def test_hook_for_tokens_refuses_who_has_none() -> None:
    play.make_trigger("core.webhook", path="free", profile="token")
    assert send(headers={}, path="free").status_code == 401
    assert send(headers={"authorization": "Bearer nonsense"}, path="free").status_code == 401
    assert outcomes() == {"not_permitted": 2}


def test_delivery_with_a_token_counts_once_though_its_caller_is_known_before_the_body(
    settings: Any,
) -> None:
    """As it is if the body comes in pieces."""
    settings.MUSTER = replace(settings.MUSTER, requests_per_minute=1)
    play.make_trigger("core.webhook", path="free", profile="token")
    token = principals.token("sender", given("operator"))
    headers = {"authorization": f"Bearer {token}"}
    admit(RequestFactory().post("/api/v1/hooks/free", headers=headers))
    statuses = [send(headers=headers, path="free").status_code for _ in range(2)]
    assert statuses == [202, 429]


def test_body_in_pieces_is_refused_to_a_stranger_before_it_is_read() -> None:
    play.make_trigger("core.webhook", path="free", profile="token")
    for path, status in (("free", 401), ("nothing", 404)):
        with pytest.raises(Problem) as refused:
            admit(RequestFactory().post(f"/api/v1/hooks/{path}"))
        assert refused.value.status == status


# --- who may make one ----------------------------------------------------------------------------


def test_hook_with_a_key_of_another_pack_needs_a_permission_there() -> None:
    play.make_trigger()
    author = principals.caller("author", given("author", packs=["core"]))
    new = {"type": "core.webhook", "parameters": GITHUB}
    assert author.post("/triggers", new).status_code == 403
    both = principals.caller("both", given("author", packs=["core", "shop"]))
    answer = both.post("/triggers", new)
    assert answer.status_code == 201
    assert answer.json()["hook_address"] == "/api/v1/hooks/github"
    assert answer.json()["parameters"]["secrets"] == GITHUB["secrets"]


def test_events_of_hooks_are_reported_by_hooks_alone() -> None:
    make_hook()
    caller = principals.caller("ci", given("admin"))
    body = {"trigger": {"type": "core.webhook", "parameters": GITHUB}, "payload": {}}
    assert caller.post("/events", body).status_code == 422
