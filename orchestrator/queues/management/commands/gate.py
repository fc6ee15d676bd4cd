"""`manage.py gate`: take task messages in and answer them."""

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
        "Run a service that keeps the gates of queues, and nothing else. Start as many as you "
        "like: they share the work. Executors keep gates too, unless started with --no-gates."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--name", default="gate", help="unique on this host")

    def handle(self, *args: Any, name: str, **options: Any) -> None:
        import_string("tasks.gate_service.run")(name)
