"""`manage.py event`: list, show, send and replay events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandError, CommandParser

from orchestrator.automation import listing, reporting
from orchestrator.automation.management import listings, selection, views
from orchestrator.automation.models import Event, Rule, TriggerType
from orchestrator.automation.models.events import SOURCES
from orchestrator.automation.recording import EventsRefused, Recorded
from orchestrator.automation.reporting import Report
from orchestrator.automation.shown import answers
from orchestrator.automation.shown import events as shown
from orchestrator.core import clock, relay
from orchestrator.core.management import arguments, output
from orchestrator.core.shown.documents import document

SOURCE = "command"


class Command(listings.ListingCommand):
    help = "Events: what happened. List, show, send, replay."
    permissions = {
        "list": "events.read",
        "show": "events.read",
        "send": "events.send",
        "replay": "events.send",
    }

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, title="verbs")
        _add_list(verbs.add_parser("list", help="Events, newest first."))
        show = verbs.add_parser("show", help="One event, with the answers of rules.")
        _add_event(show)
        output.add_json(show)
        _add_send(verbs.add_parser("send", help="Report an event; prints its id."))
        replay = verbs.add_parser("replay", help="Have the rules asked about an event again.")
        _add_event(replay)
        replay.add_argument("--rule", metavar="PACK.NAME", help="Ask this rule only.")
        output.add_json(replay)

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        verbs: dict[str, Callable[..., None]] = {
            "list": self.list_rows,
            "show": self.show_one,
            "send": self.send,
            "replay": self.replay,
        }
        verbs[verb](**options)

    def list_rows(self, *, limit: int, cursor: str | None, as_json: bool, **options: Any) -> None:
        names = ("type", "source", "key", "correlation_id")
        wanted = {name: options[name] for name in names}
        if wanted["type"]:
            selection.trigger_type(wanted["type"], TriggerType.objects.visible_to(self.principal))
        evaluated = False if options["open"] else None
        rows, among = listing.events(self.visible(Event.objects), evaluated=evaluated, **wanted)
        self.list_page(
            rows.select_related("trigger__type"),
            among,
            limit=limit,
            cursor=cursor,
            as_json=as_json,
            described=lambda row: document(shown.shown(row, seen_by=self.principal)),
            table=views.event_rows,
            none="No event matches." if any(wanted.values()) or options["open"] else "No event.",
        )

    def show_one(self, *, id: str, as_json: bool, **options: Any) -> None:
        row = self._event(id)
        if as_json:
            self.show_json(document(shown.shown(row, seen_by=self.principal)))
        else:
            self.show(*views.event_page(row, clock.now(), seen_by=self.principal))

    def send(
        self,
        *,
        name: str,
        payload: dict[str, Any],
        parameter: list[tuple[str, Any]],
        as_json: bool,
        **options: Any,
    ) -> None:
        types = TriggerType.objects.visible_to(self.principal)
        report = Report(
            trigger_type=selection.trigger_type(name, types).ref,
            trigger_parameters=dict(parameter),
            payload=payload,
            key=options["key"],
            correlation_id=options["correlation_id"],
        )
        try:
            (recorded,) = reporting.report_many(
                [report], source=SOURCE, principal=self.principal, now=clock.now()
            )
        except EventsRefused as refused:
            raise CommandError(str(output.plain(refused))) from None
        self._recorded(recorded, as_json=as_json)

    def replay(self, *, id: str, rule: str | None, as_json: bool, **options: Any) -> None:
        row = self._event(id)
        if rule is not None:
            selection.rule(rule, Rule.objects.visible_to(self.principal))
        recorded = reporting.replay(row, rule_ref=rule, principal=self.principal, now=clock.now())
        self._recorded(recorded, as_json=as_json)

    def _recorded(self, recorded: Recorded, *, as_json: bool) -> None:
        relay.flush()
        if as_json:
            self.show_json(document(answers.accepted(recorded)))
            return
        self.stdout.write(str(recorded.event_id))
        if not recorded.is_new:
            # on stderr, as a script reads the id from stdout
            self.stderr.write("It is known: an earlier report had this key.", style_func=str)

    def _event(self, text: str) -> Event:
        return selection.event(text, self.visible(Event.objects))


def _add_event(parser: CommandParser) -> None:
    parser.add_argument("id", help="Its id, or the beginning of it.")


def _add_list(parser: CommandParser) -> None:
    parser.add_argument("--type", metavar="PACK.NAME", help="The type of their trigger.")
    parser.add_argument("--source", choices=SOURCES)
    parser.add_argument("--key")
    parser.add_argument("--correlation-id")
    parser.add_argument("--open", action="store_true", help="Those that wait for the rules.")
    arguments.add_page(parser)
    output.add_json(parser)


def _add_send(parser: CommandParser) -> None:
    parser.add_argument("name", metavar="PACK.NAME", help="The type of its trigger.")
    parser.add_argument(
        "--payload", type=listings.payload, default={}, metavar="JSON",
        help="JSON, @FILE, or - for standard input.",
    )  # fmt: skip
    arguments.add_pairs(parser, "--parameter", "A parameter of its trigger.")
    parser.add_argument("--key", help="Reports with the same key are the same event.")
    parser.add_argument("--correlation-id")
    output.add_json(parser)
