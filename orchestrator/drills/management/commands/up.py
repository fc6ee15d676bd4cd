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
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.db import Error as DatabaseError
from django.db import connection
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from orchestrator.automation.sensors import condition
from orchestrator.core import checks, clock, fleet, words
from orchestrator.core.management import output, overview
from orchestrator.core.management.output import plain
from orchestrator.core.management.parsing import ParsedCommand
from orchestrator.drills import first_start, services
from orchestrator.drills.supervisor import AnotherRuns, Death, NeverStarts, Supervisor, alone

LOOK_SECONDS = 0.25
REFRESH_SECONDS = 1.0
PLAIN_LINE_SECONDS = 5.0
TOKEN_LOOK_SECONDS = 600.0
SENSOR_LOOK_SECONDS = 5.0
GRACE_SECONDS = 5.0
"""Added to the time that a worker gives its actions: for its own shutdown."""


class Command(ParsedCommand):
    requires_system_checks = (checks.CONFIGURATION,)
    help = "Start all services here and restart them if they die; Ctrl-C stops them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--port", type=_port, default=8000, help="the port of API and admin (8000)"
        )
        parser.add_argument("--workers", type=_count, default=2, help="the number of workers (2)")
        parser.add_argument(
            "--concurrency",
            type=_count,
            default=2,
            help="actions at the same time, for each worker (2)",
        )
        parser.add_argument(
            "--worker-prefix",
            default="w",
            metavar="TEXT",
            help="workers are called TEXT1, TEXT2 ...; each machine that shares a database needs "
            "its own prefix (w)",
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
                fleet.enlist(name=name)  # so that their ids are in the order of their names
            self._show_addresses(console, port)
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
            except NeverStarts as error:
                raise CommandError(str(output.plain(error))) from None
            finally:
                self._stop(supervisor, console, asked)

    def _show_addresses(self, console: Console, port: int) -> None:
        """Show the addresses and the logins. Secrets are shown once, when they are created, and
        only on a terminal: a file or a journal would keep them."""
        secrets = {
            "password of the user admin": first_start.make_admin(),
            "API token, for this machine and for a day": first_start.make_token(now=clock.now()),
        }
        url = f"http://127.0.0.1:{port}"
        pages = f"Console   {url}/console/\nAdmin     {url}/admin/\nAPI docs  {url}/api/v1/docs"
        console.print(pages, highlight=False)
        console.print(plain(f"Data      {settings.DATA_DIR}"), soft_wrap=True)
        for what, secret in secrets.items():
            if secret is not None:
                shown = f"stored in {secret.path}"
                if self.stdout.isatty():
                    shown = f"{secret.text}\n  shown only now, {shown}"
                console.print(Text(f"\n{what}: {shown}"), soft_wrap=True)
        console.print()

    def _stop(self, supervisor: Supervisor, console: Console, asked: _Stopping) -> None:
        grace_seconds = settings.MUSTER.shutdown_timeout_seconds + GRACE_SECONDS
        console.print(
            f"Stopping: running actions have {settings.MUSTER.shutdown_timeout_seconds:g} s to "
            "finish; Ctrl-C again kills them now."
        )
        urgent_at = asked.times + 1
        killed = supervisor.stop(
            grace_seconds=grace_seconds, is_urgent=lambda: asked.times >= urgent_at
        )
        console.print(f"Killed: {', '.join(killed)}." if killed else "All services stopped.")


class _Stopping:
    """Counts the requests to stop: SIGINT, SIGTERM, SIGHUP."""

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


class _Sensors:
    """Starts a sensor service once there is something for it to run."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self._look_at = 0.0

    def look(self) -> None:
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + SENSOR_LOOK_SECONDS
        service = services.sensor()
        with suppress(DatabaseError):  # the next look may succeed
            if service.name not in self.supervisor.children and condition.any_wanted():
                self.supervisor.add(service)


class _FreshToken:
    """Replaces the stored token before it expires, as long as `up` runs."""

    def __init__(self) -> None:
        self._look_at = time.monotonic() + TOKEN_LOOK_SECONDS

    def look(self) -> None:
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + TOKEN_LOOK_SECONDS
        with suppress(DatabaseError, CommandError, OSError):  # the next look may succeed
            first_start.make_token(now=clock.now())


def _watch_live(supervisor: Supervisor, console: Console, asked: _Stopping) -> None:
    log: deque[Text] = deque(maxlen=6)
    screen: RenderableType = ""
    refresh_at = 0.0
    token, sensors = _FreshToken(), _Sensors(supervisor)
    with Live(console=console, auto_refresh=False) as live:
        while not asked.within(LOOK_SECONDS):
            token.look()
            sensors.look()
            deaths = supervisor.look()
            log.extend(_summary(death) for death in deaths)
            if deaths or time.monotonic() >= refresh_at:
                refresh_at = time.monotonic() + REFRESH_SECONDS
                screen = Group(service_table(supervisor), *_installation(), *log)
                live.update(screen, refresh=True)


def _watch_plainly(supervisor: Supervisor, console: Console, asked: _Stopping) -> None:
    line_at = 0.0
    token, sensors = _FreshToken(), _Sensors(supervisor)
    while not asked.within(LOOK_SECONDS):
        token.look()
        sensors.look()
        for death in supervisor.look():
            console.print(_summary(death), soft_wrap=True)
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
            words.span(child.age_seconds) if child.pid else "",
            Text(child.death.cause if child.death else "", "dim"),
        )
    return table


def _installation() -> list[RenderableType]:
    try:
        state = overview.read(now=clock.now())
    except DatabaseError as error:
        return [_no_database(error)]
    return [overview.worker_table(state.workers), overview.execution_table(state)]


def _line(supervisor: Supervisor) -> Text:
    down = [child.service.name for child in supervisor.children.values() if not child.pid]
    services_up = f"services {len(supervisor.children) - len(down)} up"
    if down:
        services_up += f", down: {', '.join(down)}"
    try:
        state = overview.read(now=clock.now())
    except DatabaseError as error:
        return Text(f"{_time()} {services_up}; ").append(_no_database(error))
    states = ", ".join(f"{w.name} {w.status}" for w in state.workers) or "none yet"
    return plain(
        f"{_time()} {services_up}; workers: {states}; open: {_listed(state.open)}; "
        f"ended in the last hour: {_listed(state.ended)}; DLQ entries: {state.dlq_entries}"
    )


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {status}" for status, count in counts.items() if count) or "none"


def _no_database(error: Exception) -> Text:
    connection.close()
    text = plain(f"The database does not answer: {' '.join(str(error).split())[:200]}")
    text.stylize("red")
    return text


def _summary(death: Death) -> Text:
    again = ""
    if death.again_in_seconds is not None:
        again = (
            f"; again in {death.again_in_seconds:g} s" if death.again_in_seconds else "; again now"
        )
    words = f"; its log ends: {death.last_words[:120]}" if death.last_words else ""
    text = plain(f"{_time()} {death.name} died ({death.cause}){again}{words}")
    text.stylize("yellow")
    return text


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
    """Check that the port is free. Raises CommandError if not."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise CommandError(
                f"Port {port} of 127.0.0.1 cannot be used ({error.strerror}). "
                "Stop the program that uses it, or choose another: --port"
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
