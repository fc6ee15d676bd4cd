"""`manage.py notifier`: serve streams of what changes."""

from __future__ import annotations

from typing import Any

import uvicorn
from django.core.management.base import CommandParser

from orchestrator.core import checks
from orchestrator.core.management import output


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
        uvicorn.run(
            "workers.notifier.application:application",
            host=host,
            port=port,
            http="settings.connections:LimitedProtocol",
            ws="websockets-sansio",
            ws_max_size=65_536,
            ws_per_message_deflate=False,  # for a few bytes, a window of 32 KB a client
            server_header=False,
            access_log=False,
            log_config=None,  # Django's handlers take the lines
            # streams end at once; whoever takes nothing any more is cut off
            timeout_graceful_shutdown=5,
        )
