"""`manage.py enforcement`: the answers of rules to events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandParser

from orchestrator.automation import listing
from orchestrator.automation.management import listings, selection, views
from orchestrator.automation.models import Enforcement, Event, Rule
from orchestrator.automation.shown import enforcements as shown
from orchestrator.automation.states import EnforcementState
from orchestrator.core import clock
from orchestrator.core.management import arguments, output
from orchestrator.core.shown.documents import document


class Command(listings.ListingCommand):
    help = "Enforcements: the answers of rules to events. List, show."
    permissions = {"list": "rules.read", "show": "rules.read"}

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, title="verbs")
        rows = verbs.add_parser("list", help="Enforcements, newest first.")
        rows.add_argument("--rule", metavar="PACK.NAME")
        rows.add_argument("--event", help="Its id, or the beginning of it.")
        arguments.add_choices(rows, "--state", EnforcementState)
        rows.add_argument("--open", action="store_true", help="Those that have not ended.")
        arguments.add_page(rows)
        output.add_json(rows)
        show = verbs.add_parser("show", help="One enforcement.")
        show.add_argument("id", help="Its id, or the beginning of it.")
        output.add_json(show)

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        verbs: dict[str, Callable[..., None]] = {"list": self.list_rows, "show": self.show_one}
        verbs[verb](**options)

    def list_rows(
        self,
        *,
        rule: str | None,
        event: str | None,
        state: list[str],
        open: bool,
        as_json: bool,
        limit: int,
        cursor: str | None,
        **options: Any,
    ) -> None:
        seen = Event.objects.visible_to(self.principal)
        rows, among = listing.enforcements(
            self.visible(Enforcement.objects),
            rule=selection.rule(rule, self.visible(Rule.objects)).ref if rule else None,
            event_id=selection.event(event, seen).pk if event else None,
            state=state,
            open=open or None,
        )
        is_filtered = bool(rule or event or state or open)
        self.list_page(
            rows.select_related("rule", "revision"),
            among,
            as_json=as_json,
            limit=limit,
            cursor=cursor,
            described=lambda row: document(shown.shown(row, seen_by=self.principal)),
            table=lambda page: views.enforcement_rows(page, clock.now(), seen_by=self.principal),
            none="No enforcement matches." if is_filtered else "No enforcement.",
        )

    def show_one(self, *, id: str, as_json: bool, **options: Any) -> None:
        rows = self.visible(Enforcement.objects)
        found = rows.select_related("rule", "revision", "event")
        row = found.get(pk=selection.enforcement_id(id, rows))
        if as_json:
            self.show_json(document(shown.shown(row, seen_by=self.principal)))
        else:
            self.show(output.facts(shown.situation(row, clock.now(), seen_by=self.principal)))
