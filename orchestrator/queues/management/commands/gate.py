"""`manage.py gate`: take task messages in and answer them."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.utils.module_loading import import_string

from orchestrator.core import clock, presence
from orchestrator.core.management import output, ping


class Command(output.MusterCommand):
    permissions = {"": output.NOBODY}
    help = (
        "Run a service that keeps the gates of queues, and nothing else. Start as many as you "
        "like: they share the work. Executors keep gates too, unless started with --no-gates."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--name", default="gate", help="unique on this host")
        ping.add_argument(which, "gate")

    def handle(self, *args: Any, name: str, **options: Any) -> None:
        if asked := options["ping"]:
            known = presence.of_core
            ping.answer(self, ping.of_service("gate", asked, known=known, now=clock.now()))
            return
        import_string("tasks.gate_service.run")(name)
