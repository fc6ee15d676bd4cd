"""`manage.py dlq`: the dead letters, and draining their queue now."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError, CommandParser
from rich.console import RenderableType
from rich.text import Text

from orchestrator import clock, dead_letters, publisher
from orchestrator.management import execution_view, output, selection
from orchestrator.models import DLQEntry

LISTED = (
    "id",
    "execution_id",
    "attempt",
    "reason",
    "detail",
    "original_exchange",
    "original_queue",
    "original_routing_key",
    "created_at",
)
HEX_COLUMNS = 16
BODY_LIMIT_BYTES = 4_096
ID_MAX = 2**63 - 1


class Command(output.MusterCommand):
    help = "Dead letters: list them, show one, drain their queue."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, title="verbs")
        listing = verbs.add_parser("list", help="Dead letters, newest first.")
        listing.add_argument("--reason", choices=DLQEntry.Reason.values)
        listing.add_argument("--execution", metavar="ID", help="Or the beginning of its id.")
        listing.add_argument("--limit", type=int, default=50, choices=range(1, 1_001), metavar="N")
        listing.add_argument("--cursor", help="Where the page before ended.")
        output.add_json(listing)
        show = verbs.add_parser("show", help="One dead letter, whole.")
        show.add_argument("id", type=int)
        output.add_json(show)
        drain = verbs.add_parser("drain", help="Settle what waits in the dead letter queue, once.")
        output.add_json(drain)

    def handle(self, *args: Any, verb: str, as_json: bool, **options: Any) -> None:
        if verb == "list":
            self.list_rows(as_json=as_json, **options)
        elif verb == "show":
            self.show_one(options["id"], as_json=as_json)
        else:
            self.drain(as_json=as_json)

    def list_rows(self, *, as_json: bool, limit: int, cursor: str | None, **options: Any) -> None:
        rows = DLQEntry.objects.defer("headers", "x_death", "snapshot", "raw_body")
        if options["reason"]:
            rows = rows.filter(reason=options["reason"])
        if options["execution"]:
            rows = rows.filter(execution_id=selection.execution_id(options["execution"]))
        if cursor is not None:
            rows = rows.filter(pk__lt=_number(selection.read_cursor(cursor)))
        found = list(rows.order_by("-pk")[: limit + 1])
        more = selection.write_cursor(found[limit - 1].pk) if len(found) > limit else None
        found = found[:limit]
        if as_json:
            items = [output.described(row, LISTED) for row in found]
            self.show_json({"items": items, "next_cursor": more})
        elif not found:
            self.stdout.write("No dead letter was kept.")
        else:
            self.show(execution_view.dead_letters(found))
            if more:
                self.stdout.write(f"More: --cursor {more}")

    def show_one(self, entry_id: int, *, as_json: bool) -> None:
        entry = DLQEntry.objects.filter(pk=entry_id).first() if 0 < entry_id <= ID_MAX else None
        if entry is None:
            raise CommandError(f"No dead letter has the id {entry_id}; see: manage.py dlq list")
        if as_json:
            body = None if entry.raw_body is None else base64.b64encode(entry.raw_body).decode()
            more = {"raw_body_base64": body, "x_death": entry.x_death, "headers": entry.headers}
            document = output.described(entry, LISTED) | more | {"snapshot": entry.snapshot}
            self.show_json(document)
        else:
            self.show(*_page(entry))

    def drain(self, *, as_json: bool) -> None:
        try:
            drained = dead_letters.drain(now=clock.now())
        except publisher.errors() as error:
            raise CommandError(f"Broker: not drained: {error!r}") from None
        if as_json:
            self.show_json(asdict(drained))
            return
        made = output.table(">settled", ">stale", ">unreadable")
        made.add_row(str(drained.settled), str(drained.stale), str(drained.unreadable))
        self.show(made)


def _page(entry: DLQEntry) -> Iterator[RenderableType]:
    yield output.facts(
        [
            ("dead letter", str(entry.pk)),
            ("reason", entry.reason),
            ("detail", output.plain(entry.detail)),
            ("execution", str(entry.execution_id or "none")),
            ("attempt", str(entry.attempt or "")),
            ("from queue", output.plain(entry.original_queue)),
            ("from exchange", output.plain(entry.original_exchange)),
            ("routing key", output.plain(entry.original_routing_key)),
            ("drained", f"{output.moment(entry.created_at)} UTC"),
        ]
    )
    if entry.x_death:
        yield Text("\nx-death: the broker's account, newest first", style="bold")
        made = output.table(">count", "reason", "queue", "*exchange", "*routing keys", "*time")
        for death in entry.x_death:
            keys = death.get("routing-keys")
            cells = [death.get(name, "") for name in ("count", "reason", "queue", "exchange")]
            cells += [", ".join(map(str, keys)) if isinstance(keys, list) else keys or ""]
            made.add_row(*map(output.plain, [*cells, death.get("time", "")]))
        yield made
    for name, value in (("Headers", entry.headers), ("Snapshot", entry.snapshot)):
        if value:
            yield Text(f"\n{name}", style="bold")
            yield output.pretty(value)
    if entry.raw_body is not None:
        yield Text(f"\nBody, {len(entry.raw_body):,} bytes", style="bold")
        yield Text("\n".join(hexdump(bytes(entry.raw_body))))


def hexdump(body: bytes) -> Iterator[str]:
    """Lines of offset, bytes and what of them is text."""
    for start in range(0, min(len(body), BODY_LIMIT_BYTES), HEX_COLUMNS):
        part = body[start : start + HEX_COLUMNS]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        yield f"{start:08x}  {part.hex(' '):<{3 * HEX_COLUMNS}} {text}"
    if len(body) > BODY_LIMIT_BYTES:
        yield f"... {len(body) - BODY_LIMIT_BYTES:,} more bytes (all of them: --json)"


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= ID_MAX):
        raise selection.InvalidCursor
    return int(text)
