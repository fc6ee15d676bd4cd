"""`manage.py inquiry`: questions to people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser

from orchestrator.core import clock, cursors
from orchestrator.core.management import arguments, output
from orchestrator.core.management.selection import beginning_with
from orchestrator.core.management.tables import Table
from orchestrator.core.shown.documents import document
from orchestrator.inquiries import answering, listing
from orchestrator.inquiries.answering import UnknownInquiry
from orchestrator.inquiries.models import Inquiry
from orchestrator.inquiries.shown import inquiries as shown
from orchestrator.inquiries.states import KINDS, InquiryState


class Command(output.MusterCommand):
    help = "Inquiries: questions to people. List, show, respond, cancel."
    permissions = {
        "list": "inquiries.read",
        "show": "inquiries.read",
        "respond": "inquiries.respond",
        "cancel": "inquiries.cancel",
    }

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, title="verbs")
        rows = verbs.add_parser(
            "list", help="Inquiries, newest first; without --all the open ones."
        )
        arguments.add_choices(rows, "--state", InquiryState)
        rows.add_argument("--all", action="store_true", help="Those that have ended, too.")
        arguments.add_page(rows)
        output.add_json(rows)
        show = verbs.add_parser("show", help="One inquiry.")
        respond = verbs.add_parser("respond", help="Answer it; the first answer counts.")
        cancel = verbs.add_parser("cancel", help="Cancel it: what it holds up fails.")
        for verb in (show, respond, cancel):
            verb.add_argument("id", help="Its id, or the beginning of it.")
            output.add_json(verb)
        respond.add_argument(
            "response",
            type=arguments.json_object,
            help="A JSON object, such as '{\"approved\": true}', or @FILE.",
        )
        respond.add_argument(
            "--answer-key", help="Makes it safe to repeat: the stored answer comes back."
        )
        cancel.add_argument("--reason", default="", help="Kept with it.")

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        verbs: dict[str, Callable[..., None]] = {
            "list": self.list_rows,
            "show": self.show_one,
            "respond": self.respond,
            "cancel": self.cancel,
        }
        verbs[verb](**options)

    def list_rows(
        self,
        *,
        state: list[str],
        all: bool,
        as_json: bool,
        limit: int,
        cursor: str | None,
        **options: Any,
    ) -> None:
        wanted = state or ([] if all else [InquiryState.PENDING])
        rows, among = listing.inquiries(self.visible(Inquiry.objects), state=wanted)
        below = None if cursor is None else cursors.read(cursor, UUID)
        page, more = cursors.newest(rows, limit=limit, below=below, among=among)
        now = clock.now()
        if as_json:
            items = shown.shown_all(page, now, seen_by=self.principal)
            self.show_items([document(each) for each in items], next_cursor=more)
            return
        if page:
            self.show(_table(page, now))
        else:
            self.stdout.write("No inquiry matches." if all or state else "No open inquiry.")
        self.lead_on(more)

    def show_one(self, *, id: str, as_json: bool, **options: Any) -> None:
        self._show(self._selected(id), as_json)

    def respond(
        self,
        *,
        id: str,
        response: dict[str, Any],
        answer_key: str | None,
        as_json: bool,
        **options: Any,
    ) -> None:
        row = answering.respond(
            self._selected(id).pk,
            response,
            by=self.principal,
            now=clock.now(),
            answer_key=answer_key,
        )
        self._show(row, as_json)

    def cancel(self, *, id: str, reason: str, as_json: bool, **options: Any) -> None:
        pk = self._selected(id).pk
        row = answering.cancel(pk, by=self.principal, now=clock.now(), reason=reason)
        self._show(row, as_json)

    def _selected(self, id: str) -> Inquiry:
        rows = self.visible(Inquiry.objects)
        found: Inquiry = rows.get(
            pk=beginning_with(id, rows.values_list("pk"), "pk", UnknownInquiry)
        )
        return found

    def _show(self, row: Inquiry, as_json: bool) -> None:
        now = clock.now()
        if as_json:
            self.show_json(document(shown.shown(row, now, seen_by=self.principal)))
        else:
            self.show(output.facts(shown.situation(row, now, seen_by=self.principal)))


def _table(rows: Sequence[Inquiry], now: datetime) -> Table:
    table = Table("inquiry", "state", "age", "may be answered by", "*question")
    for row in rows:
        table.add_row(
            str(row.pk),
            output.status(row.state, KINDS),
            shown.age(row, now),
            output.plain(", ".join(row.assignees) or "anybody"),
            output.plain(shown.line(row)),
        )
    return table
