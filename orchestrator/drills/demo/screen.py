"""Display of the play: live in a terminal, as plain lines elsewhere, and as a picture."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path

from django.conf import settings
from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from orchestrator.core.management import output, overview
from orchestrator.core.states import TERMINAL
from orchestrator.drills.demo.account import Account, Ends
from orchestrator.drills.demo.play import Happening, Play

WIDTH = 100
BAR_WIDTH = 50
HEIGHT_OF_THE_REST = 12
"""Lines of the live picture besides the events."""

FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


def opening(play: Play) -> RenderableType:
    """An introduction to the play and its times."""
    muster = settings.MUSTER
    lines = [
        Text(f"Muster demo: SHA-256 of {play.given}, one execution each", "bold"),
        Text(
            "Three workers with two slots each. One will be killed and one stopped; every "
            "execution must end\nall the same. On SQLite and the embedded broker, with times "
            "short enough to watch:",
        ),
        Text(
            f"heartbeat {muster.heartbeat_interval_seconds:g} s, lost after "
            f"{muster.staleness_seconds:g} s, queue TTL {muster.worker_queue_ttl_ms / 1000:g} s, "
            f"maintenance every {muster.maintenance_interval_seconds:g} s",
            "dim",
        ),
    ]
    return Group(*lines, "")


def live(play: Play, *, height: int) -> RenderableType:
    """The live picture, no higher than the terminal."""
    latest = play.happenings[-max(3, height - HEIGHT_OF_THE_REST) :]
    return Group(_progress(play), _workers(play), *map(described, latest))


def line(play: Play) -> str:
    """The state of the play in one line."""
    if not play.asked.all:
        return f"{_at(play.elapsed_seconds)}  starting executor, beat and three workers"
    open_ = ", ".join(f"{n} {status}" for status, n in _open(play).items()) or "none"
    states = ", ".join(f"{w.name} {w.status}" for w in play.workers) or "none"
    return f"{_at(play.elapsed_seconds)}  ended {play.ended:,}; open: {open_}; {states}"


def described(happening: Happening) -> Text:
    return Text.assemble(
        (f"{_at(happening.at_seconds)}  ", "dim"), (happening.text, happening.style)
    )


def closing(play: Play, account: Account) -> RenderableType:
    """The account: the ends of all executions, and the checks."""
    rate = len(play.asked.files) / play.seconds if play.seconds else 0.0
    repeated = ", ".join(f"{count} {reason}" for reason, count in account.repeated.items())
    letters = ", ".join(f"{count} in {queue}" for queue, count in account.letters.items())
    facts = overview.new_table("", "", "")
    facts.show_header, facts.box = False, None
    facts.add_row("repeated elsewhere", repeated or "none")
    facts.add_row("dead letters", letters or "none")
    facts.add_row(
        "executions/s",
        f"{play.rate_with_all:.0f} with three workers, {rate:.0f} over all {play.seconds:.1f} s",
    )
    return Group(_ends(account.ends), facts, "", *_checks(account), "")


def save_svg(path: Path, *parts: RenderableType) -> None:
    """Export as SVG that needs no external font."""
    console = Console(
        record=True, file=io.StringIO(), width=WIDTH, force_terminal=True, color_system="truecolor"
    )
    for part in parts:
        console.print(part, highlight=False)
    svg = console.export_svg(title="make demo")
    svg = re.sub(r"@font-face\s*\{.*?\}", "", svg, flags=re.DOTALL)
    svg = re.sub(r"font-family: Fira Code, monospace", f"font-family: {FONT}", svg)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(svg)


def final(play: Play) -> RenderableType:
    """The live picture as it remains in the end."""
    return Group(_progress(play), _workers(play), *map(described, play.happenings))


def _progress(play: Play) -> RenderableType:
    asked = len(play.asked.all)
    if not asked:
        return Text("Starting executor, beat and three workers ...\n")
    row = Table.grid(padding=(0, 2))
    row.add_row(
        ProgressBar(total=max(1, asked), completed=play.ended, width=BAR_WIDTH),
        f"{play.ended:,} of {asked:,} ended",
        Text(_at(play.elapsed_seconds).strip(), "bold"),
    )
    counts = Text("  ").join(
        Text(f"{status} {count:,}", output.status(status).style)
        for status, count in play.counts.items()
    )
    return Group(row, counts)


def _workers(play: Play) -> Table:
    right = ("heartbeat", "holds")
    table = overview.new_table("", "worker", "status", *right, "what happened", right=right)
    for worker in play.workers:
        loss = play.losses.get(worker.name)
        what = ""
        if loss is not None:
            what = f"{loss.how}, " + (
                f"noticed after {loss.noticed_after_seconds:.1f} s"
                if loss.noticed_after_seconds is not None
                else "not noticed yet"
            )
        table.add_row(
            worker.name,
            output.status(worker.status),
            overview.silence(worker),
            str(worker.held),
            Text(what, "yellow" if loss else ""),
        )
    return table


def _ends(ends: Sequence[Ends]) -> Table:
    attempts = sorted({attempt for end in ends for attempt in end.by_attempt})
    columns = [f"{n} attempt{'s' if n > 1 else ''}" for n in attempts]
    right = ["executions", *columns]
    table = overview.new_table("", "status", "reason", "executions", *columns, right=right)
    for end in ends:
        table.add_row(
            output.status(end.status),
            end.reason,
            f"{end.total:,}",
            *(f"{end.by_attempt[n]:,}" if end.by_attempt.get(n) else "" for n in attempts),
        )
    return table


def _checks(account: Account) -> list[RenderableType]:
    return [
        Text.assemble(("  holds  ", "bold green"), check.text)
        if check.holds
        else Text.assemble(("  FAILS  ", "bold red"), (check.text, "red"))
        for check in account.checks
    ]


def _open(play: Play) -> dict[str, int]:
    return {status: n for status, n in play.counts.items() if n and status not in TERMINAL}


def _at(seconds: float) -> str:
    return f"{f'+{seconds:.1f}':>6} s"
