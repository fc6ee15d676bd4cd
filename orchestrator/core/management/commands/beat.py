"""`manage.py beat`: send ticks, and periodic tasks of yours."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from orchestrator.core import clock, presence
from orchestrator.core.management import celery_process, output, ping


class Command(output.MusterCommand):
    permissions = {"": output.NOBODY}
    help = (
        "Run beat, as `celery -A settings beat` does. One is enough, and a second does no harm; "
        "without one, executors do Muster's part of its work."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--ping",
            action="store_true",
            help="start nothing; exit 0 if beat lives on this host, else 1",
        )
        parser.add_argument("--loglevel", default="INFO")

    def handle(self, *args: Any, loglevel: str, **options: Any) -> None:
        if options["ping"]:
            known = presence.of_core
            ping.answer(self, ping.of_service("beat", "beat", known=known, now=clock.now()))
            return
        celery_process.run_beat(loglevel=loglevel)
