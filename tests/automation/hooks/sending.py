"""Hooks of a shop, and what is sent to them over the API of this process."""

from __future__ import annotations

from typing import Any

from django.test import Client

from orchestrator.access.keys import storing
from orchestrator.access.keys.references import Reference
from orchestrator.access.keys.storing import NewKey
from orchestrator.automation.hooks import profiles
from orchestrator.automation.models import Webhook
from orchestrator.core import clock
from tests.automation import play
from tests.principals import ROOT

SECRET, NEXT = "made-up-for-a-test", "made-up-for-the-next"
GITHUB: dict[str, Any] = {
    "path": "github", "profile": "github",
    "secrets": [{"$key": "shop/hook"}, {"$key": "shop/hook-next"}],
}  # fmt: skip
PUSH = b'{"ref": "refs/heads/main", "commits": [{"id": "abc"}]}'


def key(value: str = SECRET, name: str = "hook") -> None:
    new = NewKey(reference=Reference("pack", "shop", name), value=value)
    storing.create(new, by=ROOT, now=clock.now())


def revoke(name: str = "hook") -> None:
    storing.revoke(Reference("pack", "shop", name), by=ROOT, now=clock.now())


def make_hook(**parameters: Any) -> Webhook:
    play.make_trigger("core.webhook", **{**GITHUB, **parameters})
    return Webhook.objects.get()


def signed(
    body: bytes = PUSH, secret: str = SECRET, id: str = "delivery-1", **headers: str
) -> dict[str, str]:
    scheme = profiles.OF_SENDERS["github"]
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return {**scheme.sign(body, secret, now=clock.now(), id=id), **named}


def send(
    body: bytes = PUSH,
    headers: dict[str, str] | None = None,
    *,
    path: str = "github",
    content_type: str = "application/json",
    method: str = "POST",
    **meta: Any,
) -> Any:
    client = Client(raise_request_exception=False)
    sent_headers = signed(body) if headers is None else headers
    return client.generic(
        method, f"/api/v1/hooks/{path}", body, content_type=content_type, headers=sent_headers,
        **meta,
    )  # fmt: skip
