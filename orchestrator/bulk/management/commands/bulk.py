"""`manage.py bulk`: one verb on everything that matches a search."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser

from orchestrator.bulk import ordering
from orchestrator.bulk.models import BulkOrder
from orchestrator.bulk.models.orders import REASON_MAX
from orchestrator.bulk.ordering import UnknownOrder, Wish
from orchestrator.bulk.shown import orders as shown
from orchestrator.bulk.states import KINDS, OrderState
from orchestrator.bulk.verbs import VERBS
from orchestrator.core import clock, cursors
from orchestrator.core.management import arguments, output
from orchestrator.core.management.selection import beginning_with
from orchestrator.core.management.tables import Table
from orchestrator.core.models import DLQEntry
from orchestrator.core.shown.documents import document

LOOK_EVERY_SECONDS = 0.5
REFUSALS_SHOWN = 20


class Command(output.MusterCommand):
    help = "Bulk orders: one verb on everything that matches a search. Order, list, show, stop."
    permissions = {
        "order": "bulk.order",
        "list": "bulk.read",
        "show": "bulk.read",
        "stop": "bulk.order",
    }

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, title="verbs")
        _add_order(verbs.add_parser("order", help="Order a verb for all that match now."))
        rows = verbs.add_parser("list", help="Bulk orders, newest first.")
        arguments.add_choices(rows, "--state", OrderState)
        arguments.add_page(rows)
        show = verbs.add_parser("show", help="One order, and the first of what was refused.")
        show.add_argument("--wait", action="store_true", help="Follow it to its end.")
        stop = verbs.add_parser("stop", help="Stop it: no batch follows the one in process.")
        for verb in (show, stop):
            verb.add_argument("id", help="Its id, or the beginning of it.")
        stop.add_argument("--reason", required=True, type=arguments.text(REASON_MAX))
        for verb in (rows, show, stop):
            output.add_json(verb)

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        verbs: dict[str, Callable[..., None]] = {
            "order": self.order,
            "list": self.list_rows,
            "show": self.show_one,
            "stop": self.stop,
        }
        verbs[verb](**options)

    def order(
        self,
        *,
        what: str,
        query: str,
        ids: list[UUID],
        reason: str,
        resolution: str,
        at_most: int | None,
        key: str | None,
        dry_run: bool,
        wait: bool,
        as_json: bool,
        **options: Any,
    ) -> None:
        wish = Wish(what, query, ids, reason, resolution, idempotency_key=key, at_most=at_most)
        if dry_run:
            self._foresee(wish, as_json)
            return
        row = ordering.order(wish, principal=self.principal, now=clock.now())
        if wait:
            row = self._followed(row, is_quiet=as_json)
        self._show(row, as_json)

    def list_rows(
        self, *, state: list[str], as_json: bool, limit: int, cursor: str | None, **options: Any
    ) -> None:
        rows = self.visible(BulkOrder.objects)
        rows = rows.filter(state__in=state) if state else rows
        below = None if cursor is None else cursors.read(cursor, UUID)
        page, more = cursors.newest(rows, limit=limit, below=below)
        now = clock.now()
        if as_json:
            items = [document(shown.shown(row, now)) for row in page]
            self.show_items(items, next_cursor=more)
            return
        if page:
            self.show(_table(page, now))
        else:
            self.stdout.write("No bulk order matches." if state else "No bulk order yet.")
        self.lead_on(more)

    def show_one(self, *, id: str, wait: bool, as_json: bool, **options: Any) -> None:
        row = self._selected(id)
        self._show(self._followed(row, is_quiet=as_json) if wait else row, as_json)

    def stop(self, *, id: str, reason: str, as_json: bool, **options: Any) -> None:
        row = self._selected(id)
        stopped = ordering.stop(row.pk, principal=self.principal, reason=reason, now=clock.now())
        self._show(stopped, as_json)

    def _foresee(self, wish: Wish, as_json: bool) -> None:
        found = ordering.foresee(wish, principal=self.principal, now=clock.now())
        if as_json:
            self.show_json(document(shown.foreseen(found, wish.query)))
            return
        since = f" since {output.moment(found.looked_from)} UTC" if found.looked_from else ""
        self.say(f"{found.matched:,} {found.verb.noun.name} match{since}. Nothing was ordered.")

    def _selected(self, id: str) -> BulkOrder:
        rows = self.visible(BulkOrder.objects)
        found: BulkOrder = rows.get(
            pk=beginning_with(id, rows.values_list("pk"), "pk", UnknownOrder)
        )
        return found

    def _followed(self, row: BulkOrder, *, is_quiet: bool) -> BulkOrder:
        """Wait for its end, with a line for each progress."""
        latest = row
        for latest in _progress(row):
            if not is_quiet:
                self.say(f"{latest.state}: {shown.progress(latest)}")
        return latest

    def _show(self, row: BulkOrder, as_json: bool) -> None:
        now = clock.now()
        if as_json:
            self.show_json(document(shown.shown(row, now)))
            return
        facts = [("bulk order", str(row.pk)), *shown.situation(row, now), *shown.times(row, now)]
        self.show(output.facts(facts))
        refusals = list(row.refusals.all()[: REFUSALS_SHOWN + 1])
        if refusals:
            table = Table("refused", "kind", "*why")
            for each in refusals[:REFUSALS_SHOWN]:
                table.add_row(str(each.subject_id), each.kind, output.line(each.why))
            self.show(table)
        if len(refusals) > REFUSALS_SHOWN:
            self.say(f"The first {REFUSALS_SHOWN} of {row.refused:,}.")


def _add_order(parser: CommandParser) -> None:
    parser.add_argument("what", choices=list(VERBS), metavar="WHAT", help=", ".join(VERBS))
    parser.add_argument("query", nargs="?", default="", help="A search: which rows.")
    parser.add_argument(
        "--id", dest="ids", action="append", type=UUID, default=[], help="Instead: this row."
    )
    parser.add_argument(
        "--reason", default="", help="Why; kept with each row. Needed, but for --dry-run."
    )
    parser.add_argument(
        "--resolution", default="", help=f"For close: {', '.join(map(str, DLQEntry.CLOSINGS))}."
    )
    parser.add_argument(
        "--at-most", type=int, metavar="N", help="Order nothing if more rows match."
    )
    parser.add_argument("--key", help="Ordering again with it returns the first order.")
    parser.add_argument("--dry-run", action="store_true", help="Only count.")
    parser.add_argument("--wait", action="store_true", help="Follow it to its end.")
    output.add_json(parser)


def _progress(row: BulkOrder) -> Iterator[BulkOrder]:
    """The order, again whenever it has come further, and at its end."""
    yield row
    while row.is_open:
        time.sleep(LOOK_EVERY_SECONDS)
        before = row.position, row.state
        row = BulkOrder.objects.get(pk=row.pk)
        if (row.position, row.state) != before:
            yield row


def _table(rows: Sequence[BulkOrder], now: datetime) -> Table:
    table = Table("bulk order", "state", "verb", ">done", ">refused", ">of", "by", "*about")
    for row in rows:
        table.add_row(
            str(row.pk),
            output.status(row.state, KINDS),
            row.verb,
            f"{row.done:,}",
            f"{row.refused:,}",
            f"{row.matched:,}",
            output.plain(row.ordered_by),
            output.line(shown.about(row)),
        )
    return table
