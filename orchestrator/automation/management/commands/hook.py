"""`manage.py hook`: list and close webhooks; sign and send deliveries as their senders would."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from django.core.management.base import CommandError, CommandParser

from orchestrator.automation import hook_paths
from orchestrator.automation.hooks import parameters as hook_parameters
from orchestrator.automation.hooks import profiles
from orchestrator.automation.hooks.schemes import Equality, UnusableSecret
from orchestrator.automation.management import views
from orchestrator.automation.models import Rule, Webhook
from orchestrator.automation.receiving import secrets
from orchestrator.automation.shown import webhooks as shown
from orchestrator.core import authority, clock
from orchestrator.core.errors import NotFound
from orchestrator.core.management import arguments, output
from orchestrator.core.shown.documents import document
from orchestrator.core.words import did_you_mean

STDIN = "-"
HERE = "http://127.0.0.1:8000"
PATIENCE_SECONDS = 30.0


class UnknownHook(NotFound):
    """No webhook has this path."""


class Command(output.MusterCommand):
    help = "Webhooks: list and close them; sign and send deliveries as their senders would."
    permissions = {
        "list": "triggers.read",
        "sign": "events.send",
        "send": "events.send",
        "close": "triggers.change",
    }

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, title="verbs")
        listing = verbs.add_parser("list", help="Webhooks, and what became of deliveries.")
        arguments.add_limit(listing, default=200)
        output.add_json(listing)
        sign = verbs.add_parser(
            "sign", help="Print the headers of a delivery, for `curl -H @FILE --data-binary @BODY`."
        )
        _add_delivery(sign)
        output.add_json(sign)
        send = verbs.add_parser("send", help="Sign a delivery and send it; prints the answer.")
        _add_delivery(send)
        send.add_argument("--to", default=HERE, metavar="URL", help=f"The API; by default {HERE}.")
        send.add_argument(
            "--header", action="append", default=[], type=_header, metavar="NAME=VALUE",
            help="A header besides those of the signature; may be repeated.",
        )  # fmt: skip
        close = verbs.add_parser("close", help="Have nobody answer at a path that no rule needs.")
        close.add_argument("path", help="What follows /api/v1/hooks/ in its address.")

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        verbs: dict[str, Callable[..., None]] = {
            "list": self.list_rows,
            "sign": self.sign,
            "send": self.send,
            "close": self.close,
        }
        verbs[verb](**options)

    def list_rows(self, *, limit: int, as_json: bool, **options: Any) -> None:
        rows = self.visible(Webhook.objects).select_related("trigger__type")
        listed = list(rows.prefetch_related("deliveries")[:limit])
        if as_json:
            self.show_items(document(shown.shown(row)) for row in listed)
        elif listed:
            self.show(views.webhook_rows(listed))
        else:
            self.stdout.write(
                "No webhook. One comes with a rule on core.webhook, or with: "
                "manage.py trigger create core.webhook --parameters JSON"
            )

    def sign(self, *, path: str, as_json: bool, **options: Any) -> None:
        hook = self._hook(path)
        if isinstance(profiles.of(hook.trigger.parameters), Equality):
            raise CommandError(
                f"{path} takes the secret itself, which is not printed: "
                "manage.py hook send sends it"
            )
        _, _, headers = self._signed(path=path, **options)
        if as_json:
            self.show_json(headers)
        for name, value in headers.items() if not as_json else ():
            self.stdout.write(f"{name}: {value}")

    def send(self, *, to: str, header: list[tuple[str, str]], **options: Any) -> None:
        import httpx  # a fifth of a second, which no other verb needs

        hook, body, headers = self._signed(**options)
        url = to.rstrip("/") + hook_paths.address_of(hook)
        if isinstance(profiles.of(hook.trigger.parameters), Equality) and not _is_private(url):
            raise CommandError(
                f"--to {to}: the secret itself goes with it, "
                "so the address must begin with https://, or be of this host"
            )
        try:
            answer = httpx.post(
                url, content=body, headers={**headers, **dict(header)}, timeout=PATIENCE_SECONDS
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise CommandError(f"{url}: {error}; --to names the API") from None
        self.say(answer.text)
        if answer.status_code >= 400:
            raise CommandError(f"{url} answered {answer.status_code}")

    def close(self, *, path: str, **options: Any) -> None:
        hook = self._hook(path)
        authority.require(self.principal, self.permission, hook.place)
        rules = Rule.objects.filter(trigger=hook.trigger_id, retired_at__isnull=True)
        if (rule := rules.order_by("ref").first()) is not None:
            raise CommandError(f"{path} is needed by the rule {rule}: retire that")
        hook_paths.close(hook.trigger)
        self.stdout.write(f"{path} is closed: nobody answers there")

    def _signed(
        self, *, path: str, body: bytes, id: str | None, secret: int, **options: Any
    ) -> tuple[Webhook, bytes, dict[str, str]]:
        """The hook, the body, and the headers with which its sender would send that."""
        hook = self._hook(path)
        authority.require(self.principal, self.permission, hook.place)
        parameters = hook.trigger.parameters
        headers = {"content-type": options["content_type"]}
        scheme = profiles.of(parameters)
        if scheme is None:
            raise CommandError(
                f"{path} asks for a token, not for a signature: "
                "send it with `Authorization: Bearer TOKEN`"
            )
        references = hook_parameters.references(parameters)
        if secret > len(references):
            raise CommandError(f"--secret {secret}: {path} has {len(references)}")
        value = secrets.values(secrets.kept.of(references[secret - 1 : secret]))[0]
        try:
            signed = scheme.sign(body, value, now=clock.now(), id=id or str(uuid4()))
        except UnusableSecret as error:
            raise CommandError(
                f"{references[secret - 1]} is no secret of {path}: {error}"
            ) from None
        return hook, body, headers | signed

    def _hook(self, path: str) -> Webhook:
        rows = self.visible(Webhook.objects).select_related("trigger__type")
        hook: Webhook | None = rows.filter(path=path).first()
        if hook is None:
            known = self.visible(Webhook.objects).values_list("path", flat=True)
            hint = did_you_mean(path, list(known)) or "; manage.py hook list shows them"
            raise UnknownHook(f"No webhook has the path {path!r}{hint}")
        return hook


def _is_private(url: str) -> bool:
    """True if nobody on the way can read what is sent."""
    parts = urlsplit(url)
    return parts.scheme == "https" or parts.hostname in {"127.0.0.1", "::1", "localhost"}


def _add_delivery(parser: CommandParser) -> None:
    parser.add_argument("path", help="What follows /api/v1/hooks/ in its address.")
    parser.add_argument(
        "--body", type=_body, default=b"{}", metavar="TEXT",
        help="The body, @FILE, or - for standard input; by default {}.",
    )  # fmt: skip
    parser.add_argument("--content-type", default="application/json", metavar="TYPE")
    parser.add_argument("--id", help="Of the delivery; by default a new one.")
    parser.add_argument(
        "--secret", type=int, choices=(1, 2), default=1, help="Which of its secrets signs."
    )


def _body(text: str) -> bytes:
    if text == STDIN:
        return sys.stdin.buffer.read()
    if not text.startswith("@"):
        return text.encode()
    try:
        return Path(text[1:]).read_bytes()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text[1:]}: {error.strerror}") from None


def _header(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, found {text!r}")
    return name, value
