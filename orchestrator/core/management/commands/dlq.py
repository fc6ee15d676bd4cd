"""`manage.py dlq`: investigations, and draining the dead letter queue now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError, CommandParser

from orchestrator.core import brokers, clock, cursors, dead_letters, investigations
from orchestrator.core.investigations import TEXT_MAX
from orchestrator.core.management import arguments, dlq_view, output, selection
from orchestrator.core.management.tables import Table
from orchestrator.core.models import DLQEntry, InvestigationQueue
from orchestrator.core.models.dead_letters import DLQEntryQuerySet, Grouping, may_scan
from orchestrator.core.shown import investigations as shown
from orchestrator.core.shown.documents import document

EXACT = ("original_queue", "subject_name")
PATTERNS = ("namespace", "template", "opened_after", "opened_before", *EXACT)


class Command(output.MusterCommand):
    help = "Dead letters and stuck work: list, show, open, close; drain the dead letters."
    permissions = {
        "list": "dlq.read",
        "show": "dlq.read",
        "open": "dlq.change",
        "update": "dlq.change",
        "stats": "dlq.read",
        "queue": "dlq.read",
        "drain": "topology.change",
    }

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, title="verbs")
        _add_list(verbs.add_parser("list", help="Entries, newest first."))
        show = verbs.add_parser("show", help="One entry, with everything that was stored.")
        show.add_argument("id", help="Its id, or the beginning of it.")
        output.add_json(show)
        opening = verbs.add_parser(
            "open", help="Open an entry by hand; its subject continues as before."
        )
        subject = opening.add_mutually_exclusive_group(required=True)
        for kind in investigations.kinds():
            subject.add_argument(f"--{kind}", metavar="ID", help="Or the beginning of its id.")
        opening.add_argument("--detail", type=arguments.text(TEXT_MAX), required=True)
        output.add_json(opening)
        _add_update(verbs.add_parser("update", help="Add a note or metadata, or close entries."))
        _add_stats(
            verbs.add_parser("stats", help="Counts and times of the investigations of each reason.")
        )
        _add_top(verbs.add_parser("queue", help="Pending entries, the most urgent first."))
        drain = verbs.add_parser(
            "drain", help="Settle the messages in the dead letter queue, once."
        )
        drain.add_argument(
            "--broker",
            default=brokers.DEFAULT,
            help="Alias of a broker of gates: drain that one instead of Muster's own.",
        )
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
        rows = self.visible(DLQEntry.objects).without_contents()
        for name in ("dlq_reason", "resolution_status"):
            if options[name]:
                rows = rows.filter(**{name: options[name]})
        for kind, id in _subjects(options):
            rows = rows.filter(subject_kind=kind, subject_id=id)
        rows = _within(rows, options)
        below = None if cursor is None else cursors.read(cursor, cursors.whole_number)
        among = DLQEntry.objects.all() if _may_scan(options) else None
        page, more = cursors.newest(rows, limit=limit, below=below, among=among)
        if as_json:
            items = [document(shown.summary(row, seen_by=self.principal)) for row in page]
            self.show_items(items, next_cursor=more)
            return
        if page:
            self.show(dlq_view.listing(page, seen_by=self.principal))
        else:
            self.stdout.write("No DLQ entry matches." if more else "No DLQ entry.")
        self.lead_on(more, found=bool(page))

    def show_one(self, *, id: str, as_json: bool, **options: Any) -> None:
        self._show(DLQEntry.objects.get(dlq_entry_uuid=self._id(id)), as_json=as_json)

    def open(self, *, detail: str, as_json: bool, **options: Any) -> None:
        [(kind, id)] = _subjects(options)
        entry = investigations.open_manually(
            kind,
            id,
            detail=detail,
            now=clock.now(),
            actor=self.principal.actor,
            principal=self.principal,
        )
        self._show(entry, as_json=as_json)

    def update(self, *, ids: list[str], as_json: bool, **options: Any) -> None:
        common: dict[str, Any] = {
            "note": options["note"] or "",
            "metadata": options["metadata"],
            "on_behalf_of": options["resolved_by"] or "",
            "now": clock.now(),
            "actor": self.principal.actor,
        }
        entries: list[DLQEntry] = []
        try:
            for uuid in [self._id(id) for id in ids]:
                if resolution := options["resolution_status"]:
                    entries.append(investigations.close(uuid, resolution=resolution, **common))
                else:
                    entries.append(investigations.annotate(uuid, **common))
        finally:  # also those before one that is refused
            if entries:
                self._show_updated(entries, as_json=as_json)

    def _show_updated(self, entries: Sequence[DLQEntry], *, as_json: bool) -> None:
        if as_json:
            whole = [shown.whole(entry, seen_by=self.principal) for entry in entries]
            self.show_items(document(entry) for entry in whole)
        else:
            self.show(dlq_view.listing(entries, seen_by=self.principal))

    def stats(self, *, as_json: bool, by: str | None, limit: int, **options: Any) -> None:
        is_filtered = any(options[name] is not None for name in PATTERNS)
        rows = shown.stats(
            seen_by=self.principal,
            within=partial(_within, options=options) if is_filtered else None,
            by=Grouping(by) if by else None,
            limit=limit,
        )
        if as_json:
            self.show_items(document(row) for row in rows)
        elif rows:
            self.show(dlq_view.stats(rows, clock.now()))
        else:
            self.stdout.write("No DLQ entry.")

    def queue(self, *, as_json: bool, limit: int, **options: Any) -> None:
        rows = list(self.visible(InvestigationQueue.objects)[:limit])
        if as_json:
            described = [shown.urgency(row, seen_by=self.principal) for row in rows]
            self.show_items(document(row) for row in described)
        elif rows:
            self.show(dlq_view.queue(rows, seen_by=self.principal))
        else:
            self.stdout.write("No pending entry.")

    def drain(self, *, broker: str, as_json: bool, **options: Any) -> None:
        try:
            drained = dead_letters.drain(broker=broker)
        except brokers.errors() as error:
            raise CommandError(f"Broker: not drained: {error!r}") from None
        numbers = asdict(drained)
        if as_json:
            self.show_json(numbers)
            return
        table = Table(*(f">{outcome}" for outcome in numbers))
        table.add_row(*map(str, numbers.values()))
        self.show(table)

    def _show(self, entry: DLQEntry, *, as_json: bool) -> None:
        if as_json:
            self.show_json(document(shown.whole(entry, seen_by=self.principal)))
        else:
            self.show(*dlq_view.page(entry, clock.now(), seen_by=self.principal))

    def _id(self, text: str) -> UUID:
        return selection.dlq_entry(text, self.visible(DLQEntry.objects))


def _add_list(parser: CommandParser) -> None:
    parser.add_argument("--reason", dest="dlq_reason", choices=DLQEntry.Reason.values)
    parser.add_argument("--resolution-status", choices=DLQEntry.Resolution.values)
    for kind in investigations.kinds():
        parser.add_argument(f"--{kind}", metavar="ID", help="Or the beginning of its id.")
    _add_patterns(parser)
    arguments.add_page(parser)
    output.add_json(parser)


def _add_patterns(parser: CommandParser) -> None:
    parser.add_argument("--namespace", help="The namespace of its task's template.")
    parser.add_argument("--template", metavar="NAME", help="The name of its task's template.")
    for option, text in (("--opened-after", "At or after this time."), ("--opened-before", "")):
        help = f"{text} Such as 2030-01-31 or 2030-01-31T12:00:00Z; UTC by default.".lstrip()
        parser.add_argument(option, type=arguments.moment, metavar="TIME", help=help)
    parser.add_argument(
        "--queue", dest="original_queue", metavar="NAME", help="The queue its letter died in."
    )
    parser.add_argument(
        "--about",
        dest="subject_name",
        metavar="NAME",
        help="An action's ref, or a template's namespace/name/version: exactly.",
    )


def _within(rows: DLQEntryQuerySet, options: Mapping[str, Any]) -> DLQEntryQuerySet:
    """Those of the entries that the options of `_add_patterns` leave."""
    rows = rows.filter(**{name: options[name] for name in EXACT if options[name] is not None})
    rows = rows.opened(options["opened_after"], options["opened_before"])
    return rows.of_template(options["namespace"], options["template"])


def _may_scan(options: Mapping[str, Any]) -> bool:
    return may_scan(
        is_of_subject=any(options[kind] for kind in investigations.kinds()),
        resolution_status=options["resolution_status"],
        others=[options[name] for name in ("dlq_reason", *PATTERNS)],
    )


def _add_update(parser: CommandParser) -> None:
    parser.add_argument("ids", nargs="+", metavar="ID", help="Ids, or the beginnings of them.")
    parser.add_argument(
        "--resolution-status",
        choices=[str(closing) for closing in DLQEntry.CLOSINGS],
        help="Close them. They cannot be opened again.",
    )
    parser.add_argument(
        "--note", "--resolution-notes", type=arguments.text(TEXT_MAX), help="A note to add."
    )
    arguments.add_given_name(parser, "--resolved-by")
    parser.add_argument(
        "--metadata",
        type=arguments.json_object,
        default={},
        metavar="JSON|@FILE",
        help="Merged into the metadata of the entries.",
    )
    output.add_json(parser)


def _add_stats(parser: CommandParser) -> None:
    parser.add_argument(
        "--by",
        choices=[str(grouping) for grouping in Grouping],
        help="Of each reason and subject, namespace, queue or hour; most pending first.",
    )
    _add_patterns(parser)
    _add_top(parser)


def _add_top(parser: CommandParser) -> None:
    arguments.add_limit(parser, default=100)
    output.add_json(parser)


def _subjects(options: Mapping[str, Any]) -> list[tuple[str, UUID]]:
    """The subjects that the options name. Raises UnknownSubject and AmbiguousPrefix."""
    named = [kind for kind in investigations.kinds() if options[kind]]
    return [(kind, selection.subject_id(kind, options[kind])) for kind in named]
