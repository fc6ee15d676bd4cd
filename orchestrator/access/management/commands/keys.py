"""`manage.py keys`: secrets that executions refer to. No verb prints a value."""

from __future__ import annotations

import getpass
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser
from django.db.models import Count

from orchestrator.access import identities, keyring, keys
from orchestrator.access.keys import shown
from orchestrator.access.models import Key
from orchestrator.core import authority, clock
from orchestrator.core.management import output
from orchestrator.core.management.output import MusterCommand
from orchestrator.core.management.tables import Table
from orchestrator.core.shown.documents import document

REFERENCE = "PACK/NAME, installation/NAME or user/NAME."


class Command(MusterCommand):
    help = "Create, list, rotate and revoke keys, and look after the ring that seals them."
    permissions = {
        "create": "keys.manage",
        "list": "keys.read",
        "rotate": "keys.manage",
        "revoke": "keys.manage",
        "ring": "keys.manage",
        "reseal": "keys.manage",
    }

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, title="verbs")
        create = verbs.add_parser("create", help="Create a key; its value comes from stdin.")
        _add_reference(create)
        _add_value(create)
        create.add_argument(
            "--packs",
            metavar="PACK,...",
            default="",
            help="For a key of the installation: packs whose actions may get it; * is any text.",
        )
        create.add_argument("--description", default="", help="What it is for.")
        listing = verbs.add_parser("list", help="All keys, without their values.")
        listing.add_argument("--revoked", action="store_true", help="Revoked ones, too.")
        output.add_json(listing)
        rotate = verbs.add_parser("rotate", help="Give a key another value.")
        _add_reference(rotate)
        _add_value(rotate)
        revoke = verbs.add_parser("revoke", help="Destroy the value of a key.")
        _add_reference(revoke)
        ring_parser = verbs.add_parser("ring", help="The keys of MUSTER_KEYRING, by their ids.")
        ring_parser.add_argument(
            "--add", action="store_true", help="Put a new one before the others: it seals."
        )
        output.add_json(ring_parser)
        verbs.add_parser("reseal", help="Seal every key under the first key of the ring.")

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        getattr(self, f"_{verb}")(now=clock.now(), **options)

    def _create(self, *, now: datetime, **options: Any) -> None:
        packs = [pack.strip() for pack in options["packs"].split(",") if pack.strip()]
        new = keys.NewKey(
            reference=self._reference(options),
            value=self._value(options),
            packs=packs,
            description=options["description"],
        )
        key = keys.create(new, by=self.principal, now=now)
        self.stdout.write(f'{key} is created. In parameters: {{"$key": "{key}"}}')

    def _rotate(self, *, now: datetime, **options: Any) -> None:
        reference = self._reference(options)
        keys.find(reference, by=self.principal)  # before a value is asked for
        key = keys.rotate(reference, value=self._value(options), by=self.principal, now=now)
        self.stdout.write(f"{key} has another value: what is claimed from now on gets it.")

    def _revoke(self, *, now: datetime, **options: Any) -> None:
        key = keys.revoke(self._reference(options), by=self.principal, now=now)
        self.stdout.write(f"{key} is revoked, and its value is gone.")

    def _list(self, *, as_json: bool, revoked: bool, **_: Any) -> None:
        known = Key.objects.visible_to(self.principal)
        rows = known if revoked else known.usable()
        if as_json:
            self.show_items(document(shown.whole(key)) for key in rows)
        elif not rows:
            self.stdout.write("There is no key. Create one: manage.py keys create PACK/NAME")
        else:
            self.show(_table(list(rows)))

    def _ring(self, *, add: bool, as_json: bool, **_: Any) -> None:
        authority.require(self.principal, "keys.manage", authority.WHOLE)
        if add:
            keyring.add()
        held = keyring.Ring.read()
        counts = Key.objects.usable().order_by().values_list("ring_id").annotate(Count("pk"))
        sealed = dict(counts)
        rows = [
            {
                "id": id,
                "keys": sealed.get(id, 0),
                "is_here": id in held.keys,
                "seals": id == held.first,
            }
            for id in dict.fromkeys([*held.keys, *sealed])
        ]
        if as_json:
            self.show_items(rows)
            return
        table = Table("id", ">keys", "use")
        for row in rows:
            note = "seals" if row["seals"] else "opens" if row["is_here"] else "is not in the ring"
            table.add_row(str(row["id"]), str(row["keys"]), note)
        self.show(table)

    def _reseal(self, **_: Any) -> None:
        authority.require(self.principal, "keys.manage", authority.WHOLE)
        held = keys.Ring.read()
        done, faults = keys.reseal(ring=held)
        number = "1 key is" if done == 1 else f"{done} keys are"
        self.stdout.write(f"{number} newly sealed, under {held.first}.")
        if faults:
            self.fail("\n".join(faults))

    def _reference(self, options: dict[str, Any]) -> keys.Reference:
        text, owner = options["reference"], options["owner"]
        identity = str(identities.find(owner)) if owner else ""
        reference = keys.Reference.read(text, user=identity)
        if (reference.scope == Key.Scope.USER) != bool(owner):
            self.fail("--owner IDENTITY goes with user/NAME, and only with it")
        return reference

    def _value(self, options: dict[str, Any]) -> str:
        """The value, without one line end after it: from a file, from stdin, or asked for."""
        if name := options["from_file"]:
            try:
                return _without_line_end(Path(name).read_text())
            except (OSError, UnicodeDecodeError) as error:
                why = error.strerror if isinstance(error, OSError) else "it is no text"
                self.fail(f"{name} cannot be read: {why}")
        if not sys.stdin.isatty():
            return _without_line_end(sys.stdin.read(keys.LONGEST_BYTES + 2))
        value = getpass.getpass("Value: ")
        if getpass.getpass("Again: ") != value:
            self.fail("The two values differ: nothing was changed")
        return value


def _add_reference(parser: CommandParser) -> None:
    parser.add_argument("reference", help=REFERENCE)
    parser.add_argument(
        "--owner",
        metavar="IDENTITY",
        default="",
        help="Whose key user/NAME is: user:NAME or service:NAME.",
    )


def _add_value(parser: CommandParser) -> None:
    parser.add_argument(
        "--from-file",
        metavar="FILE",
        help="Read the value from here. Without it, stdin is read, or asked at a terminal: what "
        "stands in a command line is seen by others.",
    )


def _without_line_end(text: str) -> str:
    return text.removesuffix("\n").removesuffix("\r")


def _table(rows: list[Key]) -> Table:
    table = Table("key", "state", "*for", ">version", "value set", "*description")
    for key in rows:
        table.add_row(
            output.plain(key),
            output.status(shown.state(key), shown.KINDS),
            output.plain(shown.whom(key)),
            str(key.version),
            output.moment(key.changed_at)[:16],
            output.plain(key.description),
        )
    return table
