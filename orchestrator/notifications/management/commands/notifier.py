"""`manage.py notifier`: serve streams of what changes."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from orchestrator.core import checks
from orchestrator.core.management import output, serving


class Command(output.MusterCommand):
    permissions = {"": output.NOBODY}
    requires_system_checks = (checks.CONFIGURATION,)
    help = (
        "Run a notifier, which serves /api/v1/stream and /api/v1/ws. Start as many as you like: "
        "each hears of everything. API processes serve the same, to fewer clients."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="the address to listen on")
        parser.add_argument("--port", type=int, default=8001)

    def handle(self, *args: Any, host: str, port: int, **options: Any) -> None:
        serving.run(
            "workers.notifier.application:application",
            host=host,
            port=port,
            access_log=False,
            # streams end at once; whoever takes nothing any more is cut off
            graceful_seconds=5,
        )
