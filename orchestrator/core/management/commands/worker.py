"""`manage.py worker --name w1`: run executions."""

from __future__ import annotations

import os
import socket
import sys
from argparse import ArgumentTypeError
from typing import Any

from django.core.management.base import CommandError, CommandParser

from orchestrator.core import clock, database, fleet, isolation, topology
from orchestrator.core.fleet import subscriptions
from orchestrator.core.management import arguments, celery_process, output, ping
from orchestrator.core.models import Worker


class Command(output.MusterCommand):
    help = "Run a worker. Its name is its identity: only one process may use it at a time."
    permissions = {"": output.NOBODY}

    def add_arguments(self, parser: CommandParser) -> None:
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument("--name", help="unique in this installation")
        which.add_argument(
            "--ping", metavar="NAME", help="start nothing; exit 0 if this worker is well, else 1"
        )
        which.add_argument(
            "--runtimes",
            action="store_true",
            help="start nothing; show which runtimes this host offers, and why others are missing",
        )
        parser.add_argument(
            "--concurrency",
            type=int,
            default=os.cpu_count() or 1,
            help="the number of actions at the same time",
        )
        parser.add_argument(
            "--pool",
            choices=["threads", "prefork"],
            help="what launches actions (default: threads; prefork where MUSTER_LEAST_ISOLATION is "
            "trusted, because a thread cannot be killed)",
        )
        parser.add_argument(
            "--label",
            action="append",
            default=[],
            type=arguments.label,
            metavar="KEY=VALUE",
            help="a label that a worker_selector may ask for; may be repeated",
        )
        parser.add_argument(
            "--queues",
            type=_subscriptions,
            default={},
            metavar="NAME[=SLOTS],...",
            help="the queues that it serves, each with the most slots for it; NAME:retry is the "
            "retry lane of a queue (default: the queue `default` alone)",
        )
        parser.add_argument(
            "--replace",
            action="store_true",
            help="take the place of a process of this name that runs on this host; what it runs is "
            "lost (default: refuse to start)",
        )
        parser.add_argument("--events", action="store_true", help="send task events (Flower)")
        parser.add_argument("--loglevel", default="INFO")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["ping"]:
            ping.answer(self, ping.of_worker(options["ping"], now=clock.now()))
            return
        if options["runtimes"]:
            os.execv(sys.executable, [sys.executable, "-m", "workers.survey"])  # noqa: S606
        database.wait_until_reachable()
        if not options["replace"]:
            _require_vacant(options["name"])
        try:
            worker = fleet.enlist(
                name=options["name"], labels=dict(options["label"]), queues=options["queues"]
            )
        except fleet.InvalidSubscription as invalid:
            raise CommandError(f"--queues: {invalid}") from None
        celery_process.run_worker(
            name=worker.name,
            queues=[topology.worker_queue(worker.pk).name],
            pool=options["pool"] or _default_pool(),
            concurrency=options["concurrency"],
            loglevel=options["loglevel"],
            sends_events=options["events"],
            replaces_worker=options["replace"],
        )


def _require_vacant(name: str) -> None:
    """Check this before the row gets other labels and queues, as they would be those of the process
    that runs. Raises CommandError."""
    worker = Worker.objects.filter(name=name).first()
    if worker is None:
        return
    try:
        fleet.require_vacant(worker, host=socket.gethostname(), pid=os.getpid(), now=clock.now())
    except fleet.WorkerRuns as error:
        raise CommandError(str(error)) from None


def _default_pool() -> str:
    """Threads, as actions run in processes of their own below them; a trusted one runs in the pool
    itself, where only a process can be killed."""
    return "prefork" if isolation.least() == isolation.TRUSTED else "threads"


def _subscriptions(text: str) -> dict[str, int | None]:
    try:
        return subscriptions.parse(text)
    except fleet.InvalidSubscription as invalid:
        raise ArgumentTypeError(str(invalid)) from None
