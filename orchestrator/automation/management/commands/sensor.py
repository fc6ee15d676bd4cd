"""`manage.py sensor`: fire timers, poll, and run the sensors of packs."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.utils.module_loading import import_string

from orchestrator.automation.sensors import services
from orchestrator.core import clock
from orchestrator.core.management import arguments, output, ping


class Command(output.MusterCommand):
    permissions = {"": output.NOBODY}
    help = (
        "Run a sensor service, which fires timers on time, polls, and runs the sensors of packs. "
        "Start as many as you like: they share the work. Without one, executors fire timers up to "
        "a second late, and nothing polls."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--name", default="sensor", help="its name")
        ping.add_argument(which, "sensor")
        parser.add_argument(
            "--label", action="append", default=[], type=arguments.label, metavar="KEY=VALUE",
            help="a label for sensors that ask for it; may be repeated",
        )  # fmt: skip

    def handle(self, *args: Any, name: str, label: list[tuple[str, str]], **options: Any) -> None:
        if asked := options["ping"]:
            known = services.lives
            ping.answer(self, ping.of_service("sensor", asked, known=known, now=clock.now()))
            return
        import_string("workers.sensors.service.run")(name, dict(label))
