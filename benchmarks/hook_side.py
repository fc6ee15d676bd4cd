"""Webhooks of an installation of Muster: signed deliveries, in a process with its settings."""

from __future__ import annotations

import http.client
import io
import json
import os
import time
from urllib.parse import urlsplit

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings.base")
django.setup()

from django.core.management import call_command  # noqa: E402

from benchmarks import stamps  # noqa: E402
from benchmarks.hook_body import BODY  # noqa: E402
from benchmarks.remote import POLL_SECONDS, BenchmarkError  # noqa: E402
from orchestrator.access.keys import storing  # noqa: E402
from orchestrator.access.keys.references import Reference  # noqa: E402
from orchestrator.access.keys.storing import NewKey  # noqa: E402
from orchestrator.automation import rules, triggers  # noqa: E402
from orchestrator.automation.hooks import profiles  # noqa: E402
from orchestrator.automation.models import Event  # noqa: E402
from orchestrator.automation.rules import NewRule  # noqa: E402
from orchestrator.core import authority, clock  # noqa: E402

HOOK, STAMP = "bench", "stamp"
"""Paths: one that no rule waits for, and one whose rule starts an action."""

SECRET = "made-up-for-a-benchmark"  # noqa: S105


def install_hooks() -> None:
    """A ring, a key, and two hooks that are signed as GitHub's."""
    call_command("keys", "ring", "--add", stdout=io.StringIO())
    now, key = clock.now(), Reference("pack", "bench", "hook")
    storing.create(NewKey(reference=key, value=SECRET), by=authority.at_terminal(), now=now)
    triggers.ensure("core.webhook", _parameters(HOOK), now=now)
    rule = NewRule(
        ref="bench.stamp-hook",
        trigger_type="core.webhook",
        trigger_parameters=_parameters(STAMP),
        action_ref="bench.stamp",
        parameters={"address": "{{ trigger.body.address }}"},
    )
    rules.install(rule, now=now)


def _parameters(path: str) -> dict[str, object]:
    return {"path": path, "profile": "github", "secrets": [{"$key": "bench/hook"}]}


def signed(*, count: int) -> list[dict[str, str]]:
    """The headers of so many deliveries of the body, each with an id of its own."""
    first = time.monotonic_ns()
    return [_headers(BODY.encode(), f"{first}-{number}") for number in range(count)]


def _headers(body: bytes, id: str) -> dict[str, str]:
    return profiles.GITHUB.sign(body, SECRET, now=clock.now(), id=id)


def check_events(*, count: int, within_seconds: float) -> None:
    """Each delivery made one event, and rules were asked about all. Raises BenchmarkError."""
    until = time.monotonic() + within_seconds
    while Event.objects.unevaluated().exists():
        if time.monotonic() > until:
            raise BenchmarkError(f"events not evaluated within {within_seconds:.0f} s")
        time.sleep(POLL_SECONDS)
    if (found := Event.objects.filter(source="hook").count()) != count:
        raise BenchmarkError(f"expected {count} events, found {found}")


def hook_starts(*, url: str, count: int) -> list[float]:
    """Milliseconds from the sending of one delivery to the start of the action that answers it,
    each on an idle installation."""
    parts = urlsplit(url)
    link = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=20)
    with stamps.Receiver() as receiver:
        body = json.dumps({"address": receiver.address}).encode()
        first = time.monotonic_ns()
        prepared = iter([_headers(body, f"{first}-{number}") for number in range(count)])

        def one() -> int:
            headers = {"Content-Type": "application/json", **next(prepared)}
            link.request("POST", f"/api/v1/hooks/{STAMP}", body, headers)
            answer = link.getresponse()
            answer.read()
            if answer.status != 202:
                raise BenchmarkError(f"expected 202, found {answer.status}")
            return receiver.receive()

        try:
            return stamps.timed(one, count)
        finally:
            link.close()
