"""`manage.py audit`: list, verify, export and prune the audit."""

from __future__ import annotations

import json
import os
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from django.core.management.base import CommandError, CommandParser
from django.db import ProgrammingError

from orchestrator.access import audit
from orchestrator.access.audit import retention
from orchestrator.access.audit.chain import Head
from orchestrator.access.audit.models import AuditEvent
from orchestrator.access.audit.retention import Line
from orchestrator.core import clock
from orchestrator.core.database import sqlstate
from orchestrator.core.management import arguments, output
from orchestrator.core.management.tables import Table

INSUFFICIENT_PRIVILEGE = "42501"
EQUAL = ("actor", "permission", "decision", "object_id", "request_id", "address")


class Command(output.MusterCommand):
    help = "Who did what, and who was refused what: list, verify, export, prune."
    permissions = {
        "list": "audit.read",
        "verify": "audit.read",
        "export": "audit.read",
        "prune": "audit.prune",
    }

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, title="verbs")
        listing = verbs.add_parser("list", help="The newest events.")
        arguments.add_limit(listing, 50)
        for name in EQUAL:
            listing.add_argument(f"--{name.replace('_', '-')}", dest=name, metavar=name.upper())
        listing.add_argument("--since", type=arguments.moment, metavar="TIME", help=WHEN)
        output.add_json(listing)
        verify = verbs.add_parser(
            "verify", help="Compare every event with the chain; fails and names the first fault."
        )
        verify.add_argument(
            "--expect",
            action="append",
            default=[],
            type=_head,
            metavar="POSITION:HASH",
            help="An end of the chain that was noted before, and must be in it; may be repeated.",
        )
        output.add_json(verify)
        export = verbs.add_parser("export", help="Events as JSON lines, the oldest first.")
        export.add_argument("--since", type=arguments.moment, metavar="TIME", help=WHEN)
        export.add_argument(
            "--until", type=arguments.moment, metavar="TIME", help="Those before this time."
        )
        export.add_argument("--output", type=Path, metavar="FILE", help="A new file, not stdout.")
        prune = verbs.add_parser(
            "prune", help="Export old events to a file, then remove them; as the owner only."
        )
        prune.add_argument("--before", type=arguments.moment, required=True, metavar="TIME")
        prune.add_argument("--output", type=Path, required=True, metavar="FILE", help="A new file.")

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        verbs: dict[str, Callable[..., None]] = {
            "list": self.list_newest,
            "verify": self.verify,
            "export": self.export,
            "prune": self.prune,
        }
        verbs[verb](**options)

    def list_newest(
        self, *, limit: int, since: datetime | None, as_json: bool, **wanted: Any
    ) -> None:
        equal = {name: wanted[name] for name in EQUAL if wanted.get(name) is not None}
        rows = AuditEvent.objects.newest_first().filter(**equal)
        events = list((rows.since(since) if since else rows)[:limit])
        if as_json:
            self.show_items(audit.content_of(event) for event in events)
            return
        table = Table("at", "*by", "*permission", "*object", "decision", "*reason", "from")
        for event in events:
            table.add_row(
                output.moment(event.at),
                output.plain(event.actor),
                output.plain(event.permission),
                output.plain(event.about),
                output.status(event.decision),
                output.plain(event.reason),
                output.plain(event.address),
            )
        self.show(table)

    def verify(self, *, expect: Sequence[Head], as_json: bool, **_: Any) -> None:
        found = audit.verify(expected=expect)
        if as_json:
            self.show_json(asdict(found))
        if found.fault:
            raise CommandError(f"The audit was changed: {found.fault}")
        if as_json:
            return
        self.stdout.write(
            f"{found.verified:,} events are as they were sealed; {found.unsealed:,} are not sealed "
            f"yet.\nThe end of the chain, to be noted elsewhere: {found.head}"
        )

    def export(
        self, *, since: datetime | None, until: datetime | None, output: Path | None, **_: Any
    ) -> None:
        with _opened(output, self.stdout) as file:  # type: ignore[arg-type]
            for line in retention.lines(since, until):
                _write(file, line)

    def prune(self, *, before: datetime, output: Path, **_: Any) -> None:
        end = retention.end_before(before)
        with _opened(output, self.stdout) as file:  # type: ignore[arg-type]
            for line in retention.lines_up_to(end):
                _write(file, line)
        # the file is complete on the disk now
        try:
            retention.remove(end, actor=audit.whoever(), now=clock.now())
        except ProgrammingError as error:
            if sqlstate(error) != INSUFFICIENT_PRIVILEGE:
                raise
            raise CommandError(
                f"Nothing was removed, {output} has a copy. Only the owner of the tables may: run "
                "this with the DATABASE_URL that migrates"
            ) from None
        self.stdout.write(f"Removed up to {end}; {output} has the events.")


WHEN = "Those from this time on, such as 2030-01-31 or 2030-01-31T12:00:00Z; UTC by default."


def _head(text: str) -> Head:
    position, _, hash = text.partition(":")
    if not (position.isascii() and position.isdigit() and len(hash) == len(audit.GENESIS)):
        raise ArgumentTypeError(f"expected POSITION:HASH as verify prints it, found {text!r}")
    return Head(int(position), hash)


@contextmanager
def _opened(path: Path | None, stdout: TextIO) -> Iterator[TextIO]:
    """A new file that nobody else may read, complete on the disk at the end; or stdout."""
    if path is None:
        yield stdout
        return
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _write(file: TextIO, line: Line) -> None:
    file.write(json.dumps(line, ensure_ascii=False) + "\n")
