"""`manage.py executor`: schedule executions, settle dead letters, keep deadlines."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from orchestrator.core import clock, presence, topology
from orchestrator.core.management import celery_process, output, ping


class Command(output.MusterCommand):
    permissions = {"": output.NOBODY}
    help = "Run an executor. Start as many as you like: they share the work."

    def add_arguments(self, parser: CommandParser) -> None:
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--name", default="executor", help="unique on this host")
        ping.add_argument(which, "executor")
        parser.add_argument(
            "--no-gates", action="store_true", help="leave gates to others: manage.py gate"
        )
        parser.add_argument("--events", action="store_true", help="send events (Flower)")
        parser.add_argument("--loglevel", default="INFO")

    def handle(
        self, *args: Any, name: str, events: bool, loglevel: str, no_gates: bool, **options: Any
    ) -> None:
        if asked := options["ping"]:
            known = presence.of_core
            ping.answer(self, ping.of_service("executor", asked, known=known, now=clock.now()))
            return
        specs = [*topology.hot_queues(), topology.maintenance_queue()]
        celery_process.run_worker(
            name=name,
            queues=[spec.name for spec in specs],
            pool="threads",
            concurrency=2,
            loglevel=loglevel,
            sends_events=events,
            keeps_gates=not no_gates,
        )
