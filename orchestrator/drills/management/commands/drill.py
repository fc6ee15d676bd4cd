"""`manage.py drill worker-loss|broker-loss|drain`: test the promise of this installation."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from rich.text import Text

from orchestrator.core.management import output
from orchestrator.drills.drill import plays
from orchestrator.drills.drill.stage import Moment, Timeline

STYLES = {"fault": "bold red", "noticed": "yellow", "finished": "green", "mended": "cyan"}


class Command(output.MusterCommand):
    help = (
        "Break a part of this installation and time what follows. Affects only throwaway workers "
        "of its own; exit 1 if something did not go as promised."
    )
    permissions = {"": "drills.run"}

    def add_arguments(self, parser: CommandParser) -> None:
        drills = parser.add_subparsers(dest="drill", required=True, title="drills")
        loss = drills.add_parser("worker-loss", help="kill -9 of a worker at work")
        cut = drills.add_parser("broker-loss", help="a worker cut off from RabbitMQ")
        cut.add_argument("--seconds", type=float, default=15.0, help="seconds of the cut (15)")
        drain = drills.add_parser("drain", help="SIGTERM to a worker at work")
        for parser in (loss, cut, drain):
            parser.add_argument(
                "--run-seconds", type=float, default=3.0, help="seconds of each execution (3)"
            )
            output.add_json(parser)

    def handle(
        self,
        *args: Any,
        drill: str,
        as_json: bool,
        run_seconds: float,
        seconds: float = 0.0,
        **options: Any,
    ) -> None:
        timeline = Timeline(tell=(lambda *_: None) if as_json else self._show_moment)
        if drill == "worker-loss":
            result = plays.worker_loss(timeline, run_seconds=run_seconds)
        elif drill == "drain":
            result = plays.drain(timeline, run_seconds=run_seconds)
        else:
            result = plays.broker_loss(timeline, seconds=seconds, run_seconds=run_seconds)
        if as_json:
            self.show_json(_document(drill, timeline, result))
        else:
            pairs = [(name, Text(_shown(name, value))) for name, value in result.figures.items()]
            self.show(Text(""), output.facts(pairs))
        if result.wrong:
            self.fail("Not as promised:\n  " + "\n  ".join(result.wrong))

    def _show_moment(self, moment: Moment, seconds: float | None) -> None:
        when = f"{seconds:+9.2f} s" if seconds is not None else " " * 11
        line = Text.assemble(
            (f"{when}  ", "bright_black"),
            (f"{moment.what:<12}", STYLES.get(moment.what, "")),
            moment.detail,
        )
        self.show(line)
        self.stdout.flush()


def _document(drill: str, timeline: Timeline, result: plays.Result) -> dict[str, Any]:
    return {
        "drill": drill,
        "holds": not result.wrong,
        "wrong": result.wrong,
        "figures": result.figures,
        "timeline": [
            {
                "at": moment.at,
                "seconds": timeline.seconds_to(moment.at),
                "what": moment.what,
                "detail": moment.detail,
            }
            for moment in timeline.moments
        ],
    }


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "never"
    return f"{value:g} s" if name.endswith("_seconds") else str(value)
