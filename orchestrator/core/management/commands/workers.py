"""`manage.py workers`: who is there, how fresh, how busy; cordon, uncordon, drain, retire."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import close_old_connections
from rich.table import Table
from rich.text import Text

from orchestrator.core import clock, executions, fleet, words
from orchestrator.core.management import arguments, output, selection
from orchestrator.core.models import Execution, Worker, WorkerEvent
from orchestrator.core.shown import workers as shown
from orchestrator.core.shown.values import document

VERBS: dict[str, tuple[Callable[..., Worker], str]] = {
    "cordon": (fleet.cordon, "Give it nothing more but what is pinned to it."),
    "uncordon": (fleet.uncordon, "Let it have work again; after a drain, in its next life."),
    "drain": (executions.drain_worker, "Cordon it and have it finish what it runs, and exit."),
    "retire": (fleet.retire, "Remove the queues of a worker that is gone for good."),
}
LOOK_SECONDS = 0.5


class Command(output.MusterCommand):
    help = "The workers. Ages are by the database's clock, which decides who is stale."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, title="verbs")
        listing = verbs.add_parser("list", help="Workers, by name.")
        listing.add_argument("--all", action="store_true", help="Also those that were retired.")
        output.add_json(listing)
        show = verbs.add_parser("show", help="One worker.")
        show.add_argument("worker", metavar="NAME|ID")
        output.add_json(show)
        events = verbs.add_parser("events", help="What happened to a worker, newest first.")
        events.add_argument("worker", metavar="NAME|ID")
        events.add_argument("--limit", type=arguments.whole(1, 1_000), default=50, metavar="N")
        output.add_json(events)
        for name, (_, what) in VERBS.items():
            verb = verbs.add_parser(name, help=what)
            verb.add_argument("worker", metavar="NAME|ID")
            verb.add_argument("--reason", type=arguments.text(200), help="Kept with your name.")
            output.add_json(verb)
            if name == "drain":
                verb.add_argument(
                    "--wait",
                    type=arguments.seconds(7 * 86_400),
                    metavar="SECONDS",
                    help="Until its process has gone; exit status 1 if it has not by then.",
                )

    def handle(self, *args: Any, verb: str, as_json: bool, **options: Any) -> None:
        if verb == "list":
            self.list_rows(everyone=options["all"], as_json=as_json)
            return
        worker = selection.worker(options["worker"])
        if verb == "show":
            self.show_one(worker, as_json=as_json)
            return
        if verb == "events":
            self.list_events(worker, limit=options["limit"], as_json=as_json)
            return
        order, _ = VERBS[verb]
        worker = order(
            worker_id=worker.pk,
            actor=arguments.user(),
            reason=options["reason"] or "",
            now=clock.now(),
        )
        if options.get("wait"):
            worker = self.wait_until_gone(worker, within_seconds=options["wait"])
        self.show_one(worker, as_json=as_json)

    def list_rows(self, *, everyone: bool, as_json: bool) -> None:
        now = clock.now()
        rows = Worker.objects.all() if everyone else Worker.objects.known()
        found = shown.all_of(rows.order_by("name"), now=now)
        if as_json:
            self.show_json([document(worker) for worker in found])
        elif not found:
            self.stdout.write("There is no worker. Start one: manage.py worker --name w1")
        else:
            self.show(_table(found))

    def list_events(self, worker: Worker, *, limit: int, as_json: bool) -> None:
        events = WorkerEvent.objects.of(worker.pk)[:limit]
        if as_json:
            found = [shown.WorkerEventOut.model_validate(event) for event in events]
            self.show_json([document(event) for event in found])
            return
        made = output.table("at", "what", ">life", "*by", "*why")
        for event in events:
            made.add_row(
                output.moment(event.at),
                event.kind,
                str(event.incarnation),
                output.plain(event.actor),
                output.plain(event.reason),
            )
        self.show(made)

    def show_one(self, worker: Worker, *, as_json: bool) -> None:
        now = clock.now()
        found = shown.one(worker, now=now)
        if as_json:
            self.show_json(document(found))
            return
        self.show(output.facts(shown.situation(found, now)))
        for title, facts in (("Offers", shown.offers(found)), ("Process", shown.process(found))):
            self.show(Text(f"\n{title}", style="bold"), output.facts(facts))

    def wait_until_gone(self, worker: Worker, *, within_seconds: float) -> Worker:
        ends_at = time.monotonic() + within_seconds
        while worker.is_up:
            if time.monotonic() > ends_at:
                held = Execution.objects.held_by(worker).count()
                raise CommandError(
                    f"{worker} is still there after {within_seconds:g} s: it holds {held}"
                )
            time.sleep(LOOK_SECONDS)
            close_old_connections()
            worker.refresh_from_db()
        return worker


def _table(found: Sequence[shown.WorkerOut]) -> Table:
    made = output.table(
        ">id", "*name", "status", "heartbeat", ">age", ">held", ">slots", "*offers", "*why"
    )
    for worker in found:
        age = worker.heartbeat_age_seconds
        offers = ", ".join(worker.runtimes)
        if worker.labels:
            offers += f"; {words.labels(worker.labels)}"
        made.add_row(
            str(worker.id),
            output.plain(worker.name),
            output.status("retired" if worker.retired_at else worker.status),
            output.status(worker.heartbeat),
            "" if age is None else words.span(age),
            str(worker.load),
            str(worker.capacity),
            output.plain(offers),
            output.plain(shown.hindrances(worker)),
        )
    return made
