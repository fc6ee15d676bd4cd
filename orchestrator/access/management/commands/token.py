"""`manage.py token`: make, list and revoke API tokens."""

from __future__ import annotations

import json
from argparse import ArgumentParser, ArgumentTypeError
from datetime import datetime, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from rich.console import Console
from rich.table import Table

from orchestrator.access import tokens
from orchestrator.access.models import ApiToken
from orchestrator.core import checks, clock
from orchestrator.core.errors import MusterError

LONGEST_DAYS = 36_500


class Command(BaseCommand):
    requires_system_checks = (checks.CONFIGURATION,)
    help = "Make, list and revoke the tokens that the API asks for."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, title="verbs")
        create = verbs.add_parser("create", help="Make a token; its text is shown once.")
        create.add_argument("name", help="Who will use it: the actor of whatever it is used for.")
        create.add_argument(
            "--expires-in-days",
            type=_days,
            metavar="DAYS",
            help="Refused after that; never if left out.",
        )
        create.add_argument("--json", action="store_true", dest="as_json")
        listing = verbs.add_parser("list", help="All tokens, without their texts.")
        listing.add_argument("--json", action="store_true", dest="as_json")
        revoke = verbs.add_parser("revoke", help="Refuse a token from now on.")
        revoke.add_argument("name")

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        now = clock.now()
        if verb == "create":
            self.create(
                options["name"], options["expires_in_days"], now=now, as_json=options["as_json"]
            )
        elif verb == "revoke":
            self.revoke(options["name"], now=now)
        else:
            self.list_all(now=now, as_json=options["as_json"])

    def create(self, name: str, days: float | None, *, now: datetime, as_json: bool) -> None:
        expires_at = None if days is None else now + timedelta(days=days)
        try:
            token, text = tokens.create(name=name, now=now, expires_at=expires_at)
        except MusterError as error:
            raise CommandError(str(error)) from None
        if as_json:
            self.stdout.write(json.dumps({**_described(token, now), "token": text}, indent=2))
            return
        # the text alone on stdout, so that TOKEN=$(manage.py token create ci) works
        self.stdout.write(text)
        self.stderr.write("Keep it: only its digest is stored, and it is not shown again.")

    def revoke(self, name: str, *, now: datetime) -> None:
        token = ApiToken.objects.filter(name=name).first()
        if token is None:
            raise CommandError(f"No token is called {name!r}; see: manage.py token list")
        if token.revoked_at is not None:
            raise CommandError(f"{name} was revoked at {token.revoked_at:%Y-%m-%d %H:%M} already")
        tokens.revoke(token, now=now)
        self.stdout.write(f"{name} is revoked.")

    def list_all(self, *, now: datetime, as_json: bool) -> None:
        found = [_described(token, now) for token in ApiToken.objects.all()]
        if as_json:
            self.stdout.write(json.dumps(found, indent=2))
            return
        if not found:
            self.stdout.write("There is no token. Make one: manage.py token create NAME")
            return
        table = Table()
        table.add_column("name", overflow="fold")
        for heading in ("begins with", "state", "created", "last used", "expires"):
            table.add_column(heading)
        for row in found:
            times = (
                (row[key] or "never")[:16] for key in ("created_at", "last_used_at", "expires_at")
            )
            table.add_row(row["name"], row["prefix"], row["state"], *times)
        console = Console(file=self.stdout)  # type: ignore[arg-type]
        console.print(table, width=min(console.width, 100) if console.is_terminal else 100)


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = 0
    if not 0 < days <= LONGEST_DAYS:
        raise ArgumentTypeError(f"expected days above 0 and up to {LONGEST_DAYS}, found {text!r}")
    return days


def _described(token: ApiToken, now: datetime) -> dict[str, Any]:
    return {
        "name": token.name,
        "prefix": token.prefix,
        "state": tokens.state(token, now=now),
        "created_at": _text(token.created_at),
        "last_used_at": _text(token.last_used_at),
        "expires_at": _text(token.expires_at),
        "revoked_at": _text(token.revoked_at),
    }


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
