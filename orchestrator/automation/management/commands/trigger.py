"""`manage.py trigger`: types of triggers, triggers, and the next ticks of timers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import transaction

from orchestrator.automation import hook_paths, triggers
from orchestrator.automation.hooks.parameters import WEBHOOK
from orchestrator.automation.management import selection, views
from orchestrator.automation.models import Trigger, TriggerType
from orchestrator.automation.shown import triggers as shown
from orchestrator.core import authority, clock
from orchestrator.core.authority import Place
from orchestrator.core.frame import PACKS
from orchestrator.core.management import arguments, output
from orchestrator.core.shown.documents import document

TICKS_MAX = 100
TICKS_SHOWN = 5
"""Those on the page of a timer; `trigger next` shows more."""


DRY_RUN = {True: "is there already", False: "can be created"}


class Command(output.MusterCommand):
    help = "Triggers: what may happen, and when timers fire next."
    permissions = {
        "types": "triggers.read",
        "list": "triggers.read",
        "show": "triggers.read",
        "next": "triggers.read",
        "create": "triggers.change",
    }

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, title="verbs")
        types = verbs.add_parser("types", help="Types of triggers.")
        output.add_json(types)
        listing = verbs.add_parser("list", help="Triggers: types with parameters.")
        listing.add_argument("--type", metavar="PACK.NAME")
        arguments.add_limit(listing, default=200)
        output.add_json(listing)
        show = verbs.add_parser("show", help="A trigger by its number, or a type by its name.")
        show.add_argument("name", metavar="NUMBER|PACK.NAME")
        output.add_json(show)
        following = verbs.add_parser("next", help="The next ticks of a timer.")
        following.add_argument("name", metavar="NUMBER")
        following.add_argument("--count", type=arguments.whole(1, TICKS_MAX), default=10)
        output.add_json(following)

        create = verbs.add_parser("create", help="The trigger of a type with these parameters.")
        create.add_argument("type", metavar="PACK.NAME")
        create.add_argument(
            "--parameters", type=arguments.json_object, default={}, metavar="JSON",
            help="A JSON object, or @FILE; none for a type without parameters.",
        )  # fmt: skip
        create.add_argument("--dry-run", action="store_true", help="Check it, and make nothing.")
        output.add_json(create)

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        verbs: dict[str, Callable[..., None]] = {
            "types": self.list_types,
            "list": self.list_rows,
            "show": self.show_one,
            "next": self.show_next,
            "create": self.create,
        }
        verbs[verb](**options)

    def list_types(self, *, as_json: bool, **options: Any) -> None:
        rows = list(self.visible(TriggerType.objects).select_related("pack"))
        if as_json:
            self.show_items(document(shown.type_shown(row)) for row in rows)
        else:
            self.show(views.trigger_types(rows))

    def list_rows(self, *, type: str | None, limit: int, as_json: bool, **options: Any) -> None:
        rows = self.visible(Trigger.objects).select_related("type", "timer", "webhook")
        if type:
            found = selection.trigger_type(type, self.visible(TriggerType.objects))
            rows = rows.filter(type=found)
        listed = list(rows[:limit])
        if as_json:
            self.show_items(document(shown.shown(row)) for row in listed)
        elif listed:
            self.show(views.trigger_rows(listed, clock.now()))
        else:
            self.stdout.write("No trigger. They come with rules: manage.py pack install PATH")

    def show_one(self, *, name: str, as_json: bool, **options: Any) -> None:
        if "." in name:
            self._show_type(name, as_json=as_json)
            return
        row = selection.trigger(name, self.visible(Trigger.objects))
        if as_json:
            self.show_json(document(shown.shown(row)))
        else:
            now = clock.now()
            ticks = shown.next_ticks(row, TICKS_SHOWN, now=now)
            self.show(*views.trigger_page(row, ticks, now, seen_by=self.principal))

    def show_next(self, *, name: str, count: int, as_json: bool, **options: Any) -> None:
        row = selection.trigger(name, self.visible(Trigger.objects))
        if shown.timer_of(row) is None:
            raise CommandError(f"{row} is no timer: it fires when somebody reports an event")
        ticks = shown.next_ticks(row, count, now=clock.now())
        if as_json:
            self.show_items(ticks)
        for each in ticks if not as_json else ():
            self.stdout.write(f"{output.moment(each)} UTC")
        if not ticks and not as_json:
            self.stdout.write("No more.")

    def create(
        self, *, type: str, parameters: dict[str, Any], dry_run: bool, as_json: bool, **options: Any
    ) -> None:
        """Make it, or find the one that has these parameters already."""
        authority.require(self.principal, self.permission, Place.of_ref(PACKS, type))
        if type == WEBHOOK:
            hook_paths.require_permission(parameters, principal=self.principal)
        with transaction.atomic():
            is_there = triggers.exists(type, parameters)
            row = triggers.ensure(type, parameters, now=clock.now())
            described = document(shown.shown(row))
            transaction.set_rollback(dry_run)
        if as_json:
            self.show_json(described)
        elif dry_run:
            self.stdout.write(f"{type} with these parameters {DRY_RUN[is_there]}")
        else:
            self.stdout.write(f"{row} {'is there' if is_there else 'is created'}")

    def _show_type(self, ref: str, *, as_json: bool) -> None:
        row = selection.trigger_type(ref, self.visible(TriggerType.objects))
        if as_json:
            self.show_json(document(shown.type_shown(row)))
        else:
            self.show(*views.trigger_type_page(row))
