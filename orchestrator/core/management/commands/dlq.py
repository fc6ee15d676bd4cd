"""`manage.py dlq`: investigations, and draining the dead letter queue now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError, CommandParser

from orchestrator.core import clock, cursors, dead_letters, investigations, publisher
from orchestrator.core.management import arguments, dlq_view, output, selection
from orchestrator.core.models import DLQDashboard, DLQEntry, InvestigationQueue
from orchestrator.core.shown import investigations as shown
from orchestrator.core.shown.values import document

NOTE_MAX = 10_000


class Command(output.MusterCommand):
    help = "What died or got stuck: list it, look into it, close it; drain the dead letters."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, title="verbs")
        _add_list(verbs.add_parser("list", help="Entries, newest first."))
        show = verbs.add_parser("show", help="One entry, whole.")
        show.add_argument("id", help="Its id, or the beginning of it.")
        output.add_json(show)
        opening = verbs.add_parser("open", help="Open one by hand; what it is about goes on.")
        subject = opening.add_mutually_exclusive_group(required=True)
        for kind in investigations.kinds():
            subject.add_argument(f"--{kind}", metavar="ID", help="Or the beginning of its id.")
        opening.add_argument("--detail", type=arguments.text(NOTE_MAX), required=True)
        output.add_json(opening)
        _add_update(verbs.add_parser("update", help="Add a note or metadata, or close it."))
        stats = verbs.add_parser("stats", help="How the investigations of each reason stand.")
        output.add_json(stats)
        _add_top(verbs.add_parser("queue", help="What to look into next."))
        drain = verbs.add_parser("drain", help="Settle what waits in the dead letter queue, once.")
        output.add_json(drain)

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        verbs: dict[str, Callable[..., None]] = {
            "list": self.list_rows,
            "show": self.show_one,
            "open": self.open,
            "update": self.update,
            "stats": self.stats,
            "queue": self.queue,
            "drain": self.drain,
        }
        verbs[verb](**options)

    def list_rows(self, *, as_json: bool, limit: int, cursor: str | None, **options: Any) -> None:
        rows = DLQEntry.objects.without_contents()
        for name in ("dlq_reason", "resolution_status"):
            if options[name]:
                rows = rows.filter(**{name: options[name]})
        for kind, id in _subjects(options):
            rows = rows.filter(subject_kind=kind, subject_id=id)
        if cursor is not None:
            rows = rows.filter(pk__lt=cursors.read(cursor, cursors.whole_number))
        found = list(rows.order_by("-pk")[: limit + 1])
        more = cursors.write(found[limit - 1].pk) if len(found) > limit else None
        found = found[:limit]
        if as_json:
            items = [document(shown.DLQSummary.model_validate(row)) for row in found]
            self.show_json({"items": items, "next_cursor": more})
        elif not found:
            self.stdout.write("No DLQ entry.")
        else:
            self.show(dlq_view.listing(found, clock.now()))
            if more:
                self.stdout.write(f"More: --cursor {more}")

    def show_one(self, *, id: str, as_json: bool, **options: Any) -> None:
        self._show(DLQEntry.objects.get(dlq_entry_uuid=selection.dlq_entry(id)), as_json=as_json)

    def open(self, *, detail: str, as_json: bool, **options: Any) -> None:
        [(kind, id)] = _subjects(options)
        entry = investigations.open_manually(
            kind, id, detail=detail, now=clock.now(), actor=arguments.user()
        )
        self._show(entry, as_json=as_json)

    def update(self, *, ids: list[str], as_json: bool, **options: Any) -> None:
        told: dict[str, Any] = {
            "note": options["note"] or "",
            "metadata": options["metadata"],
            "now": clock.now(),
            "actor": arguments.user(),
        }
        entries = []
        for uuid in [selection.dlq_entry(id) for id in ids]:
            if resolution := options["resolution_status"]:
                entries.append(investigations.close(uuid, resolution=resolution, **told))
            else:
                entries.append(investigations.annotate(uuid, **told))
        if as_json:
            self.show_json([document(shown.whole(entry)) for entry in entries])
        else:
            self.show(dlq_view.listing(entries, told["now"]))

    def stats(self, *, as_json: bool, **options: Any) -> None:
        rows = list(DLQDashboard.objects.all())
        if as_json:
            self.show_json([document(shown.DLQReasonStats.model_validate(row)) for row in rows])
        elif rows:
            self.show(dlq_view.stats(rows, clock.now()))
        else:
            self.stdout.write("No DLQ entry.")

    def queue(self, *, as_json: bool, limit: int, **options: Any) -> None:
        rows = list(InvestigationQueue.objects.all()[:limit])
        if as_json:
            self.show_json([document(shown.Investigation.model_validate(row)) for row in rows])
        elif rows:
            self.show(dlq_view.queue(rows))
        else:
            self.stdout.write("Nothing is to be looked into.")

    def drain(self, *, as_json: bool, **options: Any) -> None:
        try:
            drained = dead_letters.drain()
        except publisher.errors() as error:
            raise CommandError(f"Broker: not drained: {error!r}") from None
        if as_json:
            self.show_json(asdict(drained))
            return
        made = output.table(">settled", ">stale", ">unreadable")
        made.add_row(str(drained.settled), str(drained.stale), str(drained.unreadable))
        self.show(made)

    def _show(self, entry: DLQEntry, *, as_json: bool) -> None:
        if as_json:
            self.show_json(document(shown.whole(entry)))
        else:
            self.show(*dlq_view.page(entry, clock.now()))


def _add_list(parser: CommandParser) -> None:
    parser.add_argument("--reason", dest="dlq_reason", choices=DLQEntry.Reason.values)
    parser.add_argument("--resolution-status", choices=DLQEntry.Resolution.values)
    for kind in investigations.kinds():
        parser.add_argument(f"--{kind}", metavar="ID", help="Or the beginning of its id.")
    parser.add_argument("--limit", type=arguments.whole(1, 1_000), default=50, metavar="N")
    parser.add_argument("--cursor", help="Where the page before ended.")
    output.add_json(parser)


def _add_update(parser: CommandParser) -> None:
    parser.add_argument("ids", nargs="+", metavar="ID", help="Ids, or the beginnings of them.")
    parser.add_argument(
        "--resolution-status",
        choices=[str(closing) for closing in DLQEntry.CLOSINGS],
        help="Closes it, for good.",
    )
    parser.add_argument("--note", type=arguments.text(NOTE_MAX), help="Appended.")
    parser.add_argument(
        "--metadata",
        type=arguments.json_object("--metadata"),
        default={},
        metavar="JSON|@FILE",
        help="Merged into what is there.",
    )
    output.add_json(parser)


def _add_top(parser: CommandParser) -> None:
    parser.add_argument("--limit", type=arguments.whole(1, 1_000), default=100, metavar="N")
    output.add_json(parser)


def _subjects(options: Mapping[str, Any]) -> list[tuple[str, UUID]]:
    """The kinds and ids that are named. Raises UnknownSubject and AmbiguousPrefix."""
    named = [kind for kind in investigations.kinds() if options[kind]]
    return [(kind, selection.subject_id(kind, options[kind])) for kind in named]
