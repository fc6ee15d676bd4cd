"""`manage.py workers`: list and show workers; cordon, uncordon, drain, retire."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import close_old_connections
from rich.text import Text

from orchestrator.core import clock, executions, fleet, words
from orchestrator.core.fleet import subscriptions
from orchestrator.core.management import arguments, output, selection
from orchestrator.core.management.tables import Table
from orchestrator.core.models import Execution, Worker, WorkerEvent
from orchestrator.core.shown import workers as shown
from orchestrator.core.shown.documents import document

VERBS: dict[str, tuple[Callable[..., Worker], str]] = {
    "cordon": (fleet.cordon, "Give it no more work, except pinned executions."),
    "uncordon": (fleet.uncordon, "Give it work again; after a drain, once it has started again."),
    "drain": (
        executions.drain_worker,
        "Cordon it, and let it finish its running executions and exit.",
    ),
    "retire": (fleet.retire, "Remove the queues of a worker that will not come back."),
}
LOOK_SECONDS = 0.5


class Command(output.MusterCommand):
    help = "List and show workers, and give them orders. Ages are by the database's clock."
    permissions = {
        "list": "workers.read",
        "show": "workers.read",
        "events": "workers.read",
        "cordon": "workers.order",
        "uncordon": "workers.order",
        "drain": "workers.order",
        "retire": "workers.retire",
    }

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, title="verbs")
        listing = verbs.add_parser("list", help="Workers, by name.")
        listing.add_argument("--all", action="store_true", help="Include retired workers.")
        output.add_json(listing)
        show = verbs.add_parser("show", help="One worker.")
        show.add_argument("worker", metavar="NAME|ID")
        output.add_json(show)
        events = verbs.add_parser("events", help="The events of a worker, newest first.")
        events.add_argument("worker", metavar="NAME|ID")
        arguments.add_limit(events, default=50)
        output.add_json(events)
        for name, (_, what) in VERBS.items():
            verb = verbs.add_parser(name, help=what)
            verb.add_argument("worker", metavar="NAME|ID")
            verb.add_argument("--reason", type=arguments.text(200), help="Stored with your name.")
            output.add_json(verb)
            if name == "drain":
                verb.add_argument(
                    "--wait",
                    type=arguments.seconds(7 * 86_400),
                    metavar="SECONDS",
                    help="Wait until its process has exited; exit status 1 if it has not by then.",
                )

    def handle(self, *args: Any, verb: str, as_json: bool, **options: Any) -> None:
        if verb == "list":
            self.list_rows(everyone=options["all"], as_json=as_json)
            return
        worker = selection.worker(options["worker"], self.visible(Worker.objects))
        if verb == "show":
            self.show_one(worker, as_json=as_json)
            return
        if verb == "events":
            self.list_events(worker, limit=options["limit"], as_json=as_json)
            return
        order, _ = VERBS[verb]
        worker = order(
            worker_id=worker.pk,
            actor=self.principal.actor,
            reason=options["reason"] or "",
            now=clock.now(),
        )
        if options.get("wait"):
            worker = self.wait_until_gone(worker, within_seconds=options["wait"])
        self.show_one(worker, as_json=as_json)

    def list_rows(self, *, everyone: bool, as_json: bool) -> None:
        now = clock.now()
        rows = self.visible(Worker.objects)
        rows = rows.order_by("name") if everyone else rows.known().order_by("name")
        listed = shown.all_of(rows, now=now)
        if as_json:
            self.show_items(document(worker) for worker in listed)
        elif not listed:
            self.stdout.write("There is no worker. Start one: manage.py worker --name w1")
        else:
            self.show(_table(listed, now))

    def list_events(self, worker: Worker, *, limit: int, as_json: bool) -> None:
        events = WorkerEvent.objects.of(worker.pk)[:limit]
        if as_json:
            self.show_items(document(shown.WorkerEventOut.model_validate(e)) for e in events)
            return
        table = Table("at", "event", ">life", "*by", "*reason")
        for event in events:
            table.add_row(
                output.moment(event.at),
                event.kind,
                str(event.incarnation),
                output.plain(event.actor),
                output.plain(event.reason),
            )
        self.show(table)

    def show_one(self, worker: Worker, *, as_json: bool) -> None:
        now = clock.now()
        one = shown.one(worker, now=now)
        if as_json:
            self.show_json(document(one))
            return
        self.show(output.facts(shown.situation(one, now)))
        for title, facts in (("Offers", shown.offers(one)), ("Process", shown.process(one))):
            self.show(Text(f"\n{title}", style="bold"), output.facts(facts))

    def wait_until_gone(self, worker: Worker, *, within_seconds: float) -> Worker:
        ends_at = time.monotonic() + within_seconds
        while worker.is_up:
            if time.monotonic() > ends_at:
                held = Execution.objects.held_by(worker).count()
                raise CommandError(
                    f"{worker} is still up after {within_seconds:g} s: it holds {held} executions"
                )
            time.sleep(LOOK_SECONDS)
            close_old_connections()
            worker.refresh_from_db()
        return worker


def _table(workers: Sequence[shown.WorkerOut], now: datetime) -> Table:
    table = Table(
        *(">id", "name", "status", "heartbeat", ">age", ">held", ">slots", "*offers", "*why")
    )
    for worker in workers:
        age = worker.heartbeat_age_seconds
        offers = ", ".join(worker.runtimes)
        if worker.labels:
            offers += f"; {words.labels(worker.labels)}"
        if worker.queues:
            offers += f"; queues {subscriptions.text(worker.queues)}"
        table.add_row(
            str(worker.id),
            output.plain(worker.name),
            output.status("retired" if worker.retired_at else worker.status),
            output.status(worker.heartbeat),
            "" if age is None else words.span(age),
            str(worker.load),
            str(worker.capacity),
            output.plain(offers),
            output.plain(shown.hindrances(worker, now)),
        )
    return table
