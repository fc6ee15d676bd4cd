"""`manage.py executor`: schedule executions, settle dead letters, keep deadlines."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from orchestrator.core import checks, topology
from orchestrator.core.management import celery_process
from orchestrator.core.management.parsing import ParsedCommand


class Command(ParsedCommand):
    requires_system_checks = (checks.CONFIGURATION,)
    help = "Run an executor. Start as many as you like: they share the work."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--name", default="executor", help="unique on this host")
        parser.add_argument(
            "--no-gates", action="store_true", help="leave gates to others: manage.py gate"
        )
        parser.add_argument("--events", action="store_true", help="send events (Flower)")
        parser.add_argument("--loglevel", default="INFO")

    def handle(
        self, *args: Any, name: str, events: bool, loglevel: str, no_gates: bool, **options: Any
    ) -> None:
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
