"""`manage.py up`: every service on this machine, in one terminal."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from argparse import ArgumentParser, ArgumentTypeError
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import Error as DatabaseError
from django.db import connection
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from orchestrator.core import checks, clock, fleet
from orchestrator.core.management import overview
from orchestrator.drills import first_start, services
from orchestrator.drills.supervisor import AnotherRuns, Death, Supervisor, alone

LOOK_SECONDS = 0.25
REFRESH_SECONDS = 1.0
PLAIN_LINE_SECONDS = 5.0
GRACE_SECONDS = 5.0
"""Beyond what a worker gives to what it runs: for its own goodbye."""


class Command(BaseCommand):
    requires_system_checks = (checks.CONFIGURATION,)
    help = "Start all services here and look after them; Ctrl-C stops them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--port", type=_port, default=8000, help="of API and admin (8000)")
        parser.add_argument("--workers", type=_count, default=2, help="how many (2)")
        parser.add_argument(
            "--concurrency", type=_count, default=2, help="actions at once, for each worker (2)"
        )
        parser.add_argument(
            "--worker-prefix",
            default="w",
            metavar="TEXT",
            help="workers are called TEXT1, TEXT2 ...; machines that share a database need "
            "prefixes of their own (w)",
        )
        parser.add_argument("--plain", action="store_true", help="lines instead of a live table")

    def handle(self, *args: Any, port: int, plain: bool, **options: Any) -> None:
        console = Console(file=self.stdout)  # type: ignore[arg-type]
        names = [f"{options['worker_prefix']}{n}" for n in range(1, options["workers"] + 1)]
        asked = _Stopping()
        with _alone_on(settings.DATA_DIR):
            refuse_taken_port(port)
            first_start.check_servers()
            first_start.prepare(now=clock.now())
            for name in names:
                fleet.enlist(name=name)  # here, so that their ids are in the order of their names
            self._tell(console, port)
            supervisor = Supervisor(
                [
                    services.api(port=port),
                    services.executor(),
                    services.beat(),
                    *(services.worker(n, concurrency=options["concurrency"]) for n in names),
                ],
                log_dir=settings.DATA_DIR / "logs",
                work_dir=settings.BASE_DIR,
                environment=os.environ,
            )
            supervisor.start()
            try:
                if plain or not console.is_terminal:
                    _watch_plainly(supervisor, console, asked)
                else:
                    _watch_live(supervisor, console, asked)
            finally:
                self._stop(supervisor, console, asked)

    def _tell(self, console: Console, port: int) -> None:
        """Where it is, and how to get in. Secrets are shown once, when they are made."""
        made = {
            "password of the user admin": first_start.make_admin(),
            "API token": first_start.make_token(now=clock.now()),
        }
        url = f"http://127.0.0.1:{port}"
        console.print(f"Admin     {url}/admin/\nAPI docs  {url}/api/v1/docs", highlight=False)
        console.print(f"Data      {settings.DATA_DIR}", highlight=False, soft_wrap=True)
        for what, secret in made.items():
            if secret is not None:
                console.print(
                    f"\n[bold]{what}:[/] {secret.text}\n  shown this once, kept in {secret.path}",
                    highlight=False,
                    soft_wrap=True,
                )
        console.print()

    def _stop(self, supervisor: Supervisor, console: Console, asked: _Stopping) -> None:
        grace_seconds = settings.MUSTER.shutdown_timeout_seconds + GRACE_SECONDS
        console.print(
            f"Stopping: what runs has {settings.MUSTER.shutdown_timeout_seconds:g} s to finish; "
            "Ctrl-C again ends it now."
        )
        urgent_at = asked.times + 1
        killed = supervisor.stop(
            grace_seconds=grace_seconds, is_urgent=lambda: asked.times >= urgent_at
        )
        console.print(f"Killed: {', '.join(killed)}." if killed else "All services stopped.")


class _Stopping:
    """How often somebody asked to stop: SIGINT, SIGTERM, SIGHUP."""

    def __init__(self) -> None:
        self.times = 0
        self._asked = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._note)

    def _note(self, *_: Any) -> None:
        self.times += 1
        self._asked.set()

    def within(self, seconds: float) -> bool:
        return self._asked.wait(seconds)


def _watch_live(supervisor: Supervisor, console: Console, asked: _Stopping) -> None:
    log: deque[Text] = deque(maxlen=6)
    screen: RenderableType = ""
    refresh_at = 0.0
    with Live(console=console, auto_refresh=False) as live:
        while not asked.within(LOOK_SECONDS):
            deaths = supervisor.look()
            log.extend(Text(f"{_time()} {_told(death)}", "yellow") for death in deaths)
            if deaths or time.monotonic() >= refresh_at:
                refresh_at = time.monotonic() + REFRESH_SECONDS
                screen = Group(service_table(supervisor), *_installation(), *log)
                live.update(screen, refresh=True)


def _watch_plainly(supervisor: Supervisor, console: Console, asked: _Stopping) -> None:
    line_at = 0.0
    while not asked.within(LOOK_SECONDS):
        for death in supervisor.look():
            console.print(f"{_time()} {_told(death)}", highlight=False, soft_wrap=True)
        if time.monotonic() >= line_at:
            line_at = time.monotonic() + PLAIN_LINE_SECONDS
            console.print(_line(supervisor), highlight=False, soft_wrap=True)


def service_table(supervisor: Supervisor) -> Table:
    right = ("pid", "restarts", "age")
    table = overview.new_table("Services", "name", "state", *right, "last death", right=right)
    for child in supervisor.children.values():
        table.add_row(
            child.service.name,
            Text("up", "green") if child.pid else Text("down", "red"),
            str(child.pid or ""),
            str(child.restarts),
            overview.age(child.age_seconds) if child.pid else "",
            Text(child.death.cause if child.death else "", "dim"),
        )
    return table


def _installation() -> list[RenderableType]:
    try:
        found = overview.read(now=clock.now())
    except DatabaseError as error:
        return [_no_database(error)]
    return [overview.worker_table(found.workers), overview.execution_table(found)]


def _line(supervisor: Supervisor) -> Text:
    down = [child.service.name for child in supervisor.children.values() if not child.pid]
    services_up = f"services {len(supervisor.children) - len(down)} up"
    if down:
        services_up += f", down: {', '.join(down)}"
    try:
        found = overview.read(now=clock.now())
    except DatabaseError as error:
        return Text(f"{_time()} {services_up}; ").append(_no_database(error))
    states = ", ".join(f"{w.name} {w.status}" for w in found.workers) or "none yet"
    return Text(
        f"{_time()} {services_up}; workers: {states}; open: {_listed(found.open)}; "
        f"ended in the last hour: {_listed(found.ended)}; DLQ entries: {found.dlq_entries}"
    )


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {status}" for status, count in counts.items() if count) or "none"


def _no_database(error: Exception) -> Text:
    connection.close()
    return Text(f"The database does not answer: {' '.join(str(error).split())[:200]}", "red")


def _told(death: Death) -> str:
    again = ""
    if death.again_in_seconds is not None:
        again = (
            f"; again in {death.again_in_seconds:g} s" if death.again_in_seconds else "; again now"
        )
    words = f"; its log ends: {death.last_words[:120]}" if death.last_words else ""
    return f"{death.name} died ({death.cause}){again}{words}"


def _time() -> str:
    return time.strftime("%H:%M:%S")


# --- before the start --------------------------------------------------------------------------


@contextmanager
def _alone_on(directory: Path) -> Iterator[None]:
    try:
        with alone(directory):
            yield
    except AnotherRuns as error:
        raise CommandError(str(error)) from None


def refuse_taken_port(port: int) -> None:
    """Raises CommandError if somebody listens there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise CommandError(
                f"Port {port} of 127.0.0.1 cannot be used ({error.strerror}). "
                "Stop what listens there, or choose another: --port"
            ) from None


def _port(text: str) -> int:
    number = int(text) if text.isdigit() else 0
    if not 0 < number < 65_536:
        raise ArgumentTypeError(f"expected a port from 1 to 65535, found {text!r}")
    return number


def _count(text: str) -> int:
    number = int(text) if text.isdigit() else 0
    if not 0 < number <= 1_000:
        raise ArgumentTypeError(f"expected a whole number from 1 to 1000, found {text!r}")
    return number
