"""`manage.py sensor`: fire timers."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.utils.module_loading import import_string

from orchestrator.core import checks
from orchestrator.core.management import output


class Command(output.MusterCommand):
    permissions = {"": output.NOBODY}
    requires_system_checks = (checks.CONFIGURATION,)
    help = (
        "Run a sensor service, which fires timers on time. Start as many as you like: they share "
        "the work. Without one, executors fire timers up to a second late."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--name", default="sensor", help="its name in the log")

    def handle(self, *args: Any, name: str, **options: Any) -> None:
        import_string("workers.sensor.run")(name)
