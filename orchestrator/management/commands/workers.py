"""`manage.py workers`: who is there, how fresh, how busy."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.core.management.base import CommandParser

from orchestrator import clock, fleet
from orchestrator.management import output
from orchestrator.models import Execution, Worker


class Command(output.MusterCommand):
    help = "The workers. Ages are by the database's clock, which decides who is stale."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, title="verbs")
        output.add_json(verbs.add_parser("list", help="All workers, by name."))

    def handle(self, *args: Any, as_json: bool, **options: Any) -> None:
        now = clock.now()
        load = Execution.objects.load_by_worker()
        found = [
            _described(worker, load=load.get(worker.pk, 0), now=now)
            for worker in Worker.objects.order_by("name")
        ]
        if as_json:
            self.show_json(found)
        elif not found:
            self.stdout.write("There is no worker. Start one: manage.py worker --name w1")
        else:
            self.show(_table(found))


def _table(found: list[dict[str, Any]]) -> Any:
    made = output.table(
        ">id", "*name", "status", "heartbeat", ">age", ">held", ">slots", "*runtimes", "*host"
    )
    for worker in found:
        age = worker["heartbeat_age_seconds"]
        made.add_row(
            str(worker["id"]),
            output.plain(worker["name"]),
            output.status(worker["status"]),
            output.status(worker["heartbeat"]),
            "" if age is None else output.span(age),
            str(worker["held"]),
            str(worker["capacity"]),
            output.plain(", ".join(worker["runtimes"])),
            output.plain(worker["host"]),
        )
    return made


def _described(worker: Worker, *, load: int, now: datetime) -> dict[str, Any]:
    heartbeat = "never"
    if worker.heartbeat_at is not None:
        heartbeat = "fresh" if worker.is_fresh(now) else "stale"
    return fleet.describe(worker, now=now) | {"heartbeat": heartbeat, "held": load}
