"""`manage.py rule`: list, show, enable, disable and test rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandParser

from orchestrator.automation import asking, rules
from orchestrator.automation.management import listings, selection, views
from orchestrator.automation.models import Event, Rule
from orchestrator.automation.shown import answers
from orchestrator.automation.shown import rules as shown
from orchestrator.core import authority, clock
from orchestrator.core.management import arguments, output
from orchestrator.core.shown.documents import document

UNMATCHED = 1
"""The exit status of a test whose rule does not match."""


class Command(output.MusterCommand):
    help = "Rules: which action answers which events. List, show, enable, disable, test."
    permissions = {
        "list": "rules.read",
        "show": "rules.read",
        "enable": "rules.enable",
        "disable": "rules.enable",
        "test": "rules.read",
    }

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, title="verbs")
        listing = verbs.add_parser("list", help="Rules, by name.")
        listing.add_argument("--pack", help="Those whose names begin with it.")
        listing.add_argument("--retired", action="store_true", help="Also those out of use.")
        arguments.add_limit(listing, default=200)
        output.add_json(listing)
        for verb, text in (
            ("show", "One rule, what it says, and its latest answers."),
            ("enable", "Have events ask it, whatever its pack says."),
            ("disable", "Have no event ask it; outlives upgrades of its pack."),
        ):
            one = verbs.add_parser(verb, help=text)
            _add_rule(one)
            output.add_json(one)
        test = verbs.add_parser(
            "test", help="Ask it, leaf by leaf; exit status 1 if it does not match."
        )
        _add_rule(test)
        about = test.add_mutually_exclusive_group(required=True)
        about.add_argument(
            "--payload", type=listings.payload, metavar="JSON",
            help="A payload: JSON, @FILE, or - for standard input.",
        )  # fmt: skip
        about.add_argument("--event", help="A past event: its id, or the beginning of it.")
        output.add_json(test)

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        verbs: dict[str, Callable[..., None]] = {
            "list": self.list_rows,
            "show": self.show_one,
            "enable": self.enable,
            "disable": self.disable,
            "test": self.test,
        }
        verbs[verb](**options)

    def list_rows(
        self, *, pack: str | None, retired: bool, limit: int, as_json: bool, **options: Any
    ) -> None:
        rows = self.visible(Rule.objects).select_related(*selection.RULE)
        listed = list(listings.of_packs(rows, pack=pack, retired=retired)[:limit])
        if as_json:
            self.show_items(document(shown.summary(row)) for row in listed)
        elif listed:
            self.show(views.rule_rows(listed))
        else:
            self.stdout.write("No rule. They come with packs: manage.py pack install PATH")

    def show_one(self, *, name: str, as_json: bool, **options: Any) -> None:
        rule = self._rule(name)
        if as_json:
            self.show_json(document(shown.detail(rule)))
        else:
            self.show(*views.rule_page(rule, clock.now(), seen_by=self.principal))

    def enable(self, **options: Any) -> None:
        self._switch(rules.enable, "is enabled", **options)

    def disable(self, **options: Any) -> None:
        self._switch(rules.disable, "is disabled", **options)

    def test(
        self,
        *,
        name: str,
        payload: dict[str, Any] | None,
        event: str | None,
        as_json: bool,
        **options: Any,
    ) -> None:
        rule = self._rule(name)
        if event is not None:
            row = selection.event(event, Event.objects.visible_to(self.principal))
            answer = asking.about_event(rule, row, seen_by=self.principal)
        else:
            answer = asking.about_payload(
                rule, payload or {}, seen_by=self.principal, now=clock.now()
            )
        if as_json:
            self.show_json(document(answers.shown(answer)))
        else:
            self.show(*views.answer_page(answer))
        if not answer.explanation.matched:
            raise SystemExit(UNMATCHED)

    def _switch(
        self, verb: Callable[..., Rule], done: str, *, name: str, as_json: bool, **options: Any
    ) -> None:
        rule = self._rule(name)
        authority.require(self.principal, self.permission, rule.place)
        verb(rule.ref, now=clock.now())
        if as_json:
            self.show_json(document(shown.detail(self._rule(name))))
        else:
            self.stdout.write(f"{rule.ref} {done}")

    def _rule(self, name: str) -> Rule:
        return selection.rule(name, self.visible(Rule.objects))


def _add_rule(parser: CommandParser) -> None:
    parser.add_argument("name", metavar="PACK.NAME")
