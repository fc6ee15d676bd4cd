"""`manage.py access`: identities and their grants."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser
from rich.text import Text

from orchestrator.access import grants, identities, shown
from orchestrator.access.management import options as access_options
from orchestrator.access.models import Identity
from orchestrator.core import clock
from orchestrator.core.frame import ADMIN, ROLES
from orchestrator.core.management import output
from orchestrator.core.management.tables import Table
from orchestrator.core.shown.documents import document


class Command(output.MusterCommand):
    help = "People and service accounts, and what they may do: list, grant, revoke, disable."
    permissions = {
        "list": "access.manage",
        "roles": output.NOBODY,
        "create": "access.manage",
        "grant": "access.manage",
        "revoke": "access.manage",
        "disable": "access.manage",
        "enable": "access.manage",
    }

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, title="verbs")
        listing = verbs.add_parser("list", help="Identities and their grants.")
        output.add_json(listing)
        roles = verbs.add_parser("roles", help="Every permission, and the roles that have it.")
        output.add_json(roles)
        create = verbs.add_parser("create", help="Create a service account; it may do nothing yet.")
        create.add_argument("name")
        create.add_argument("--description", default="", help="What it is for.")
        for verb, text in (
            ("grant", "Give a role or a permission, everywhere or where the options say."),
            ("revoke", "Take it away; without options, everywhere where it was given."),
        ):
            granting = verbs.add_parser(verb, help=text)
            _add_identity(granting)
            granting.add_argument("gives", metavar="ROLE|PERMISSION")
            access_options.add_scope(granting)
        for verb, text in (
            ("disable", "Refuse everything in its name, its tokens included, from now on."),
            ("enable", "Accept it again."),
        ):
            _add_identity(verbs.add_parser(verb, help=text))

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        verbs: dict[str, Callable[..., None]] = {
            "list": self.list_all,
            "roles": self.roles,
            "create": self.create,
            "grant": self.grant,
            "revoke": self.revoke,
            "disable": self.disable,
            "enable": self.enable,
        }
        verbs[verb](**options)

    def list_all(self, *, as_json: bool, **options: Any) -> None:
        rows = list(Identity.objects.in_order().prefetch_related("grants", "tokens"))
        if as_json:
            self.show_items(document(shown.identity(row)) for row in rows)
            return
        if not rows:
            self.stdout.write("No identity. Create one: manage.py access create NAME")
            return
        table = Table("*identity", "state", "*may", ">tokens", "*description")
        now = clock.now()
        for row in rows:
            table.add_row(
                output.plain(row),
                output.status(identities.state(row), identities.KINDS),
                output.plain(_may(row)),
                str(_usable_tokens(row, now)),
                output.plain(row.description),
            )
        self.show(table)

    def roles(self, *, as_json: bool, **options: Any) -> None:
        known = grants.permissions().values()
        if as_json:
            self.show_items(
                {"permission": each.name, "text": each.text, "roles": [*each.roles, ADMIN]}
                for each in known
            )
            return
        table = Table("permission", *ROLES, "*permits")
        for each in known:
            marks = ["yes" if role in (*each.roles, ADMIN) else "" for role in ROLES]
            table.add_row(each.name, *marks, output.plain(each.text.replace("`", "")))
        self.show(table)
        self.show(
            Text(
                "Grant a role, or single permissions: manage.py access grant IDENTITY "
                "ROLE|PERMISSION [--pack NAME]"
            )
        )

    def create(self, *, name: str, description: str, **options: Any) -> None:
        row = identities.create_service(name, description=description, now=clock.now())
        self.stdout.write(f"{row} is made. It may do nothing: manage.py access grant {row} ROLE")

    def grant(self, *, identity: str, gives: str, **options: Any) -> None:
        now = clock.now()
        given = access_options.given(gives, options)
        row = identities.find(identity, now=now)
        identities.grant(row, given, by=self.principal, now=now)
        self.stdout.write(f"{row} is granted {given}.")

    def revoke(self, *, identity: str, gives: str, **options: Any) -> None:
        row = identities.find(identity)
        chosen = list(row.grants.filter(gives=gives))
        if access_options.has_scope(options):
            wanted = grants.scope_as_json(access_options.given(gives, options).scope)
            chosen = [each for each in chosen if each.scope == wanted]
        if not chosen:
            raise CommandError(f"{row} has no such grant; see: manage.py access list")
        identities.revoke(row, chosen, by=self.principal)
        left = f"It may still: {_may(row)}." if _may(row) else "It may do nothing now."
        self.stdout.write(f"{row} is no longer granted {gives}. {left}")

    def disable(self, *, identity: str, **options: Any) -> None:
        row = identities.find(identity, now=clock.now())
        identities.disable(row, by=self.principal, now=clock.now())
        self.stdout.write(f"{row} is disabled; its tokens are refused.")

    def enable(self, *, identity: str, **options: Any) -> None:
        row = identities.find(identity, now=clock.now())
        identities.enable(row, by=self.principal)
        self.stdout.write(f"{row} is enabled.")


def _add_identity(parser: CommandParser) -> None:
    parser.add_argument("identity", help="service:NAME, user:NAME, or only the name.")


def _may(row: Identity) -> str:
    return "; ".join(str(each) for each in identities.given_to(row))


def _usable_tokens(row: Identity, now: datetime) -> int:
    return sum(
        each.revoked_at is None and (each.expires_at is None or each.expires_at > now)
        for each in row.tokens.all()
    )
