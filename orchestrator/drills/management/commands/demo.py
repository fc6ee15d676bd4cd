"""`manage.py demo`: real files and three workers; it loses two workers, and no execution."""

from __future__ import annotations

import os
import sys
import time
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from rich.console import Console
from rich.live import Live

from orchestrator.core import checks, clock, fleet
from orchestrator.core.management import output
from orchestrator.core.management.parsing import ParsedCommand
from orchestrator.drills import first_start, services
from orchestrator.drills.demo import account, screen, stage
from orchestrator.drills.demo.files import standard_library
from orchestrator.drills.demo.play import STAYS, WORKERS, Play, Stuck
from orchestrator.drills.supervisor import AnotherRuns, NeverStarts, Supervisor, alone

LOOK_SECONDS = 0.2
PLAIN_LINE_SECONDS = 2.0
GRACE_SECONDS = 10.0
CONCURRENCY = 2
FEWEST_FILES = 50


class Command(ParsedCommand):
    requires_system_checks = (checks.CONFIGURATION,)
    help = "Watch Muster lose two of three workers, and no execution. Needs no servers."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--files", type=_file_count, metavar="N", help="the number of files, instead of all"
        )
        parser.add_argument(
            "--data-dir",
            type=Path,
            default=settings.BASE_DIR / "var" / "demo",
            help="emptied at the start, kept afterwards (var/demo)",
        )
        parser.add_argument("--svg", type=Path, metavar="PATH", help="save the last screen")
        parser.add_argument("--plain", action="store_true", help="lines instead of a live table")
        parser.add_argument("--on-stage", action="store_true", help=SUPPRESS)

    def handle(self, *args: Any, data_dir: Path, on_stage: bool, **options: Any) -> None:
        if not on_stage:
            stage.enter(data_dir.resolve(), [*sys.argv, "--on-stage"])
        try:
            with alone(settings.DATA_DIR):
                holds = self._perform(**options)
        except (AnotherRuns, Stuck, NeverStarts) as error:
            logs = settings.DATA_DIR / "logs"
            raise CommandError(f"{output.plain(error)}\nLogs: {logs}") from None
        except KeyboardInterrupt:
            raise CommandError("Stopped before its end.", returncode=130) from None
        if not holds:
            raise SystemExit(1)

    def _perform(self, *, files: int | None, svg: Path | None, plain: bool, **_: Any) -> bool:
        console = Console(file=self.stdout)  # type: ignore[arg-type]
        if not console.is_terminal:
            console.width = screen.WIDTH
        supervisor = _supervisor()
        play = Play(standard_library(limit=files), supervisor)
        console.print(screen.opening(play), highlight=False)
        first_start.prepare(now=clock.now())
        for name in WORKERS:
            fleet.enlist(name=name)  # so that their ids are in the order of their names
        try:
            supervisor.start()
            if plain or not console.is_terminal:
                _show_plainly(play, console)
            else:
                _show_live(play, console)
        finally:
            supervisor.stop(grace_seconds=GRACE_SECONDS)
        stage.remove_broker(settings.DATA_DIR)
        closing = account.draw_up(play)
        ending = screen.closing(play, closing)
        console.print(ending, highlight=False)
        if svg is not None:
            screen.save_svg(svg, screen.opening(play), screen.final(play), ending)
        self._show_next_commands(console)
        return closing.holds

    def _show_next_commands(self, console: Console) -> None:
        directory = settings.DATA_DIR
        if directory.is_relative_to(Path.cwd()):
            directory = directory.relative_to(Path.cwd())
        console.print(
            f"Look at it in the admin:  MUSTER_DATA_DIR={directory} make up\n"
            "Start one of your own:    make up\n"
            "Both:                     http://127.0.0.1:8000/admin/, API docs at /api/v1/docs",
            highlight=False,
            soft_wrap=True,
        )


def _supervisor() -> Supervisor:
    return Supervisor(
        [
            services.executor(),
            services.beat(),
            *(
                services.worker(name, concurrency=CONCURRENCY, restarts=name == STAYS)
                for name in WORKERS
            ),
        ],
        log_dir=settings.DATA_DIR / "logs",
        work_dir=settings.BASE_DIR,
        environment=os.environ,
    )


def _show_live(play: Play, console: Console) -> None:
    with Live(console=console, auto_refresh=False, transient=True) as display:
        while play.step():
            display.update(screen.live(play, height=console.height), refresh=True)
            time.sleep(LOOK_SECONDS)
    console.print(screen.final(play))


def _show_plainly(play: Play, console: Console) -> None:
    shown, line_at = 0, 0.0
    continues = True
    while continues:
        continues = play.step()
        for happening in play.happenings[shown:]:
            console.print(screen.described(happening), soft_wrap=True)
        shown = len(play.happenings)
        if time.monotonic() >= line_at:
            line_at = time.monotonic() + PLAIN_LINE_SECONDS
            console.print(screen.line(play), highlight=False, soft_wrap=True)
        time.sleep(LOOK_SECONDS)


def _file_count(text: str) -> int:
    number = int(text) if text.isdigit() else 0
    if number < FEWEST_FILES:
        raise ArgumentTypeError(f"expected a whole number from {FEWEST_FILES} up, found {text!r}")
    return number
