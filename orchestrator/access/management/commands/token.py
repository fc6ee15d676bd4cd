"""`manage.py token`: create, list, rotate and revoke API tokens."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import transaction

from orchestrator.access import identities, shown, tokens
from orchestrator.access.authorizer import Identified
from orchestrator.access.management import options as access_options
from orchestrator.access.models import ApiToken, Identity
from orchestrator.core import authority, clock
from orchestrator.core.management import output
from orchestrator.core.management.tables import Table
from orchestrator.core.shown.documents import document


class Command(output.MusterCommand):
    help = "Create, list, rotate and revoke the tokens that the API requires."
    permissions = {
        "create": "tokens.manage",
        "list": "tokens.own",
        "rotate": "tokens.manage",
        "revoke": "tokens.own",
    }

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, title="verbs")
        _add_create(verbs.add_parser("create", help="Create a token; its text is shown once."))
        listing = verbs.add_parser("list", help="All tokens, without their texts.")
        output.add_json(listing)
        rotate = verbs.add_parser("rotate", help="Give a token another text, which is shown once.")
        rotate.add_argument("name")
        rotate.add_argument(
            "--overlap",
            type=access_options.duration(tokens.LONGEST_OVERLAP),
            default=timedelta(hours=1),
            metavar="DURATION",
            help="How long the old text is still accepted, such as 30m; 1h if left out.",
        )
        output.add_json(rotate)
        revoke = verbs.add_parser("revoke", help="Refuse a token from now on; its name is free.")
        revoke.add_argument("name")

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        verbs: dict[str, Callable[..., None]] = {
            "create": self.create,
            "list": self.list_all,
            "rotate": self.rotate,
            "revoke": self.revoke,
        }
        verbs[verb](now=clock.now(), **options)

    def create(self, *, name: str, now: datetime, as_json: bool, **options: Any) -> None:
        only = [access_options.given(gives, options) for gives in options["only"]]
        if access_options.has_scope(options) and not only:
            raise CommandError("--pack, --namespace and --label need --only ROLE")
        with transaction.atomic():  # if there is no token, no service account is made for it
            owner = self._owner(name, options["owner"], now)
            row, text = tokens.create(
                name=name,
                owner=owner,
                by=self.principal,
                only=only or None,
                networks=options["network"],
                lifetime=options["expires_in_days"],
                now=now,
            )
        self._show_text(row, text, now=now, as_json=as_json)
        if not identities.given_to(owner):
            self.stderr.write(
                f"It may do nothing yet: manage.py access grant {owner} ROLE; the roles are in: "
                "manage.py access roles"
            )

    def _owner(self, name: str, owner: str | None, now: datetime) -> Identity:
        """The identity that is named, or the service account with the token's own name."""
        if owner is not None:
            return identities.find(owner, now=now)
        known = Identity.objects.services().filter(service_name=name).first()
        return known or identities.create_service(name, now=now)

    def rotate(
        self, *, name: str, overlap: timedelta, now: datetime, as_json: bool, **options: Any
    ) -> None:
        row, text = tokens.rotate(self._token(name), by=self.principal, overlap=overlap, now=now)
        self._show_text(row, text, now=now, as_json=as_json)
        until = output.moment(now + overlap)
        self.stderr.write(f"The old text is accepted until {until} UTC.")

    def revoke(self, *, name: str, now: datetime, **options: Any) -> None:
        tokens.revoke(self._token(name), by=self.principal, now=now)
        self.stdout.write(f"{name} is revoked.")

    def list_all(self, *, now: datetime, as_json: bool, **options: Any) -> None:
        rows = self._known()
        listed = [shown.token(row, now=now) for row in rows]
        if as_json:
            self.show_items(document(each) for each in listed)
            return
        if not listed:
            self.stdout.write("There is no token. Create one: manage.py token create NAME")
            return
        table = Table(
            "*name", "starts with", "state", "*owner", "last used", "expires", "*narrowed to"
        )
        for row, each in zip(rows, listed, strict=True):
            table.add_row(
                output.plain(each.name),
                each.prefix,
                output.status(each.state, tokens.KINDS),
                output.plain(each.owner),
                output.moment(each.last_used_at)[:16] or "never",
                output.moment(each.expires_at)[:16] or "never",
                output.plain(_narrowed(row)),
            )
        self.show(table)

    def _known(self) -> list[ApiToken]:
        rows = ApiToken.objects.select_related("identity__user")
        if authority.may(self.principal, "tokens.manage"):
            return list(rows)
        own = self.principal.identity_id if isinstance(self.principal, Identified) else None
        return list(rows.filter(identity=own))

    def _token(self, name: str) -> ApiToken:
        """The token that is in use under this name."""
        known = [row for row in self._known() if row.name == name]
        for row in reversed(known):
            if row.revoked_at is None:
                return row
        if known:
            at = known[-1].revoked_at
            raise CommandError(f"{name} was revoked at {output.moment(at)[:16]} already")
        raise CommandError(f"No token is called {name!r}; see: manage.py token list")

    def _show_text(self, row: ApiToken, text: str, *, now: datetime, as_json: bool) -> None:
        if as_json:
            self.show_json(document(shown.with_text(row, text, now=now)))
            return
        # the text alone on stdout, so that TOKEN=$(manage.py token create ci) works
        self.stdout.write(text)
        end = output.moment(row.expires_at)[:16]
        self.stderr.write(
            f"Keep it: only its digest is stored, and it is not shown again. It expires {end} UTC."
        )


def _add_create(parser: CommandParser) -> None:
    parser.add_argument("name", help="Its name: the actor in the history of its requests.")
    parser.add_argument(
        "--owner",
        metavar="IDENTITY",
        help="service:NAME or user:NAME; by default the service account with the token's name, "
        "which is made if there is none.",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="ROLE|PERMISSION",
        help="Narrows what it may do of what its owner may. May be repeated.",
    )
    access_options.add_scope(parser)
    parser.add_argument(
        "--network",
        action="append",
        default=[],
        metavar="CIDR",
        help="Accepted from these addresses only, such as 10.1.0.0/16. May be repeated.",
    )
    most = tokens.LONGEST_LIFETIME.days
    parser.add_argument(
        "--expires-in-days",
        type=access_options.days(most),
        default=tokens.LIFETIME,
        metavar="DAYS",
        help=f"It expires after this time, at most {most} days; {tokens.LIFETIME.days} if left "
        "out.",
    )
    output.add_json(parser)


def _narrowed(row: ApiToken) -> str:
    parts = [str(each) for each in shown.only(row) or ()]
    parts += [f"from {', '.join(row.networks)}"] if row.networks else []
    return "; ".join(parts)
