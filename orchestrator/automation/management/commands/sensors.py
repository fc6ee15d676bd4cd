"""`manage.py sensors`: list, show, enable, disable and restart sensors, and read their logs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandParser

from orchestrator.automation.management import listings, selection, views
from orchestrator.automation.models import Sensor
from orchestrator.automation.sensors import catalogue, logs
from orchestrator.automation.shown import sensors as shown
from orchestrator.core import authority, clock
from orchestrator.core.management import arguments, output
from orchestrator.core.shown.documents import document


class Command(output.MusterCommand):
    help = "Sensors: programs that watch and report events. List, show, log, restart, switch."
    permissions = {
        "list": "sensors.read",
        "show": "sensors.read",
        "log": "sensors.read",
        "restart": "sensors.enable",
        "enable": "sensors.enable",
        "disable": "sensors.enable",
    }

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, title="verbs")
        listing = verbs.add_parser("list", help="Sensors, by name, and who runs them.")
        listing.add_argument("--pack", help="Those whose names begin with it.")
        listing.add_argument("--retired", action="store_true", help="Also those out of use.")
        arguments.add_limit(listing, default=200)
        output.add_json(listing)
        for verb, text in (
            ("show", "One sensor, how it does, and what happened to it."),
            ("restart", "End it, and start it again with its cursor, at once."),
            ("enable", "Have it run, whatever its pack says."),
            ("disable", "End it, and keep its cursor; outlives upgrades of its pack."),
        ):
            one = verbs.add_parser(verb, help=text)
            one.add_argument("name", metavar="PACK.NAME")
            output.add_json(one)
        log = verbs.add_parser("log", help="The end of what it wrote to its standard error.")
        log.add_argument("name", metavar="PACK.NAME")
        log.add_argument("--lines", type=_lines, default=50, help="The newest ones (50).")
        output.add_json(log)

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        verbs: dict[str, Callable[..., None]] = {
            "list": self.list_rows,
            "show": self.show_one,
            "log": self.show_log,
            "restart": self.restart,
            "enable": self.enable,
            "disable": self.disable,
        }
        verbs[verb](**options)

    def list_rows(
        self, *, pack: str | None, retired: bool, limit: int, as_json: bool, **options: Any
    ) -> None:
        rows = self.visible(Sensor.objects).select_related(*catalogue.RELATED)
        listed = list(listings.of_packs(rows, pack=pack, retired=retired)[:limit])
        if as_json:
            self.show_items(document(shown.summary(row)) for row in listed)
        elif listed:
            self.show(views.sensor_rows(listed))
        else:
            self.stdout.write("No sensor. They come with packs: manage.py pack install PATH")

    def show_one(self, *, name: str, as_json: bool, **options: Any) -> None:
        row = self._sensor(name)
        if as_json:
            self._show_json(row)
        else:
            self.show(*views.sensor_page(row, clock.now()))

    def show_log(self, *, name: str, lines: int, as_json: bool, **options: Any) -> None:
        row = self._sensor(name)
        authority.require(self.principal, authority.PAYLOADS, row.place)
        found = logs.read(row, lines=lines)
        if as_json:
            self.show_items(found)
        for line in found if not as_json else ():
            self.stdout.write(str(output.plain(line)))

    def restart(self, **options: Any) -> None:
        self._change(catalogue.restart, "starts again", **options)

    def enable(self, **options: Any) -> None:
        self._change(catalogue.enable, "is enabled", **options)

    def disable(self, **options: Any) -> None:
        self._change(catalogue.disable, "is disabled", **options)

    def _change(
        self, verb: Callable[..., Sensor], done: str, *, name: str, as_json: bool, **options: Any
    ) -> None:
        row = self._sensor(name)
        authority.require(self.principal, self.permission, row.place)
        changed = verb(row.ref, now=clock.now(), actor=self.principal.actor)
        if as_json:
            self._show_json(changed)
        else:
            self.stdout.write(f"{row.ref} {done}")

    def _show_json(self, row: Sensor) -> None:
        assigned = shown.assignment_of(row)
        cursor = assigned.cursor if assigned else {}
        seen = authority.payload(cursor, of=row.place, seen_by=self.principal)
        self.show_json(document(shown.detail(row, cursor=seen)))

    def _sensor(self, name: str) -> Sensor:
        return selection.sensor(name, self.visible(Sensor.objects))


def _lines(text: str) -> int:
    return max(1, min(int(text), logs.LONGEST_LINES))
