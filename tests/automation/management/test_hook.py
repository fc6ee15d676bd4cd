"""`manage.py hook`: what it shows, and what it signs."""

from __future__ import annotations

import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import httpx
import pytest

from orchestrator.automation import rules
from orchestrator.automation.models import Event
from tests import commands
from tests.automation import play
from tests.automation.hooks import vectors
from tests.automation.hooks.sending import GITHUB, PUSH, SECRET, key, make_hook, send
from tests.automation.hooks.vectors import Vector, mac
from tests.factories import NOW, make_action

hook, trigger = commands.of("hook"), commands.of("trigger")


@pytest.fixture(autouse=True)
def shop(db: None, sent: Any, settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path
    make_action("shop.ship")


def test_hooks_are_listed_with_what_became_of_deliveries() -> None:
    assert "No webhook." in hook.run("list")
    key()
    row = make_hook()
    send()
    send(headers={})
    [listed] = hook.document("list")["items"]
    assert (listed["path"], listed["address"], listed["trigger_id"]) == (
        "github", "/api/v1/hooks/github", row.trigger_id,
    )  # fmt: skip
    assert listed["secrets"] == ["shop/hook", "shop/hook-next"]
    assert {each["outcome"]: each["total"] for each in listed["deliveries"]} == {
        "accepted": 1, "unsigned": 1,
    }  # fmt: skip
    shown = hook.run("list")
    assert "unsigned: Expected a signature in the header x-hub-signature-256" in shown
    assert "/api/v1/hooks/github" in trigger.run("show", str(row.trigger_id))


def test_headers_that_are_printed_are_taken(tmp_path: Path) -> None:
    key()
    make_hook()
    file = tmp_path / "push.json"
    file.write_bytes(PUSH)
    printed = hook.run("sign", "github", "--body", f"@{file}", "--id", "delivery-9")
    headers = dict(line.split(": ", 1) for line in printed.splitlines())
    assert headers == {
        "content-type": "application/json",
        "x-hub-signature-256": f"sha256={mac(SECRET, PUSH)}",
        "x-github-delivery": "delivery-9",
    }
    content_type = headers.pop("content-type")
    assert send(PUSH, headers, content_type=content_type).status_code == 202
    assert hook.document("sign", "github", "--body", "{}")["content-type"] == "application/json"


@pytest.mark.parametrize("vector", vectors.SIGNED, ids=str)
def test_delivery_of_each_profile_is_signed(vector: Vector) -> None:
    key(vector.secret)
    play.make_trigger("core.webhook", **vector.parameters)
    headers = hook.document("sign", vector.profile, "--body", '{"id": "evt_9"}')
    content_type = headers.pop("content-type")
    answer = send(b'{"id": "evt_9"}', headers, path=vector.profile, content_type=content_type)
    assert answer.status_code == 202, answer.content


def test_delivery_is_sent(monkeypatch: Any) -> None:
    key()
    make_hook()
    sent_to: list[str] = []

    def post(url: str, *, content: bytes, headers: dict[str, str], timeout: float) -> Any:
        """The API of this process, in place of one that listens."""
        sent_to.append(url)
        given = dict(headers)
        answer = send(content, given, content_type=given.pop("content-type"))
        return httpx.Response(answer.status_code, content=answer.content)

    monkeypatch.setattr(httpx, "post", post)
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(PUSH)))
    printed = hook.run("send", "github", "--body", "-", "--header", "X-GitHub-Event=push")
    assert str(Event.objects.get().pk) in printed
    assert Event.objects.get().payload["headers"]["x-github-event"] == "push"
    assert sent_to == ["http://127.0.0.1:8000/api/v1/hooks/github"]


def test_what_cannot_be_signed_is_refused_with_its_reason() -> None:
    key(name="another")  # and so there is a ring
    make_hook()
    assert "did you mean 'github'" in hook.refused("sign", "githab")
    assert "there is no key shop/hook" in hook.refused("sign", "github").lower()
    key("no base64 at all!")
    play.make_trigger(
        "core.webhook", path="std", profile="standard", secrets=[{"$key": "shop/hook"}]
    )
    assert "shop/hook is no secret of std" in hook.refused("sign", "std")
    assert "--secret 2: std has 1" in hook.refused("sign", "std", "--secret", "2")
    play.make_trigger("core.webhook", path="free", profile="token")
    assert "asks for a token" in hook.refused("sign", "free")
    assert "127.0.0.1:1" in hook.refused("send", "github", "--to", "http://127.0.0.1:1")


def test_hook_that_no_rule_needs_is_closed() -> None:
    row = make_hook()
    play.make_rule("shop.deploy", trigger=row.trigger)
    assert "needed by the rule shop.deploy" in hook.refused("close", "github")
    rules.retire("shop.deploy", now=NOW)
    assert "No webhook has the path" in hook.refused("close", "github")
    make_hook()
    assert "closed" in hook.run("close", "github")
    assert send().status_code == 404


def test_secret_is_in_nothing_that_is_printed(monkeypatch: Any) -> None:
    key()
    make_hook()
    play.make_trigger(
        "core.webhook", path="gitlab", profile="gitlab", secrets=[{"$key": "shop/hook"}]
    )
    for options in ([], ["--json"]):
        refusal = hook.refused("sign", "gitlab", *options)
        assert "gitlab takes the secret itself, which is not printed" in refusal
        assert SECRET not in refusal
    posted: list[dict[str, str]] = []

    def post(url: str, *, headers: dict[str, str], **_: Any) -> httpx.Response:
        posted.append(headers)
        return httpx.Response(202)

    monkeypatch.setattr(httpx, "post", post)
    hook.run("send", "gitlab")
    assert posted[0]["x-gitlab-token"] == SECRET
    assert SECRET not in hook.run("list") + hook.run("sign", "github") + str(GITHUB)


@pytest.mark.parametrize(
    "to", ["http://example.org", "http://127.0.0.1.example.org:8000", "ftp://a"]
)
def test_a_secret_itself_is_not_sent_where_others_can_read_it(to: str) -> None:
    key()
    play.make_trigger(
        "core.webhook", path="gitlab", profile="gitlab", secrets=[{"$key": "shop/hook"}]
    )
    assert "must begin with https://" in hook.refused("send", "gitlab", "--to", to)
