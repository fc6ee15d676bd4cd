"""`make soak`: work of every kind at a steady rate, for a day or as long as the arguments say, with
little kept. Do memory, tables and what is open stay bounded?

What is kept is short, so that rows come and go many times. The first part of the run, in which
tables and caches fill, does not count. The rest has two halves: nothing may be larger in the second
than in the first by more than it varies.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.door import Door
from benchmarks.stage import Muster, Stage
from settings.muster import Muster as Settings

KEPT = [each.name for each in fields(Settings) if re.fullmatch(r"keep_\w+_days", each.name)]
SETTLED_AFTER = 2.5
"""Times that what is kept was replaced, before it counts."""
MOST_SAMPLE_SECONDS = 60.0
MORE_ROWS, MORE_ROWS_SHARE = 200, 0.15
"""A table may have so many rows more in the second half, and this share."""
MORE_MB, MORE_MB_SHARE = 8.0, 0.10
DAY_MINUTES = 24 * 60
SHORT, LEAST_KEPT_MINUTES = ("-m", "benchmarks.short_memory"), 60
"""The arguments that start services that keep rows for less than any installation does."""


@dataclass
class Growth:
    """The values of one thing, in their order."""

    name: str
    unit: str
    more: float
    more_share: float
    values: list[float] = field(default_factory=list)

    @property
    def halves(self) -> tuple[float, float]:
        """The middle of each half."""
        half = len(self.values) // 2
        return median(self.values[:half]), median(self.values[half:])

    @property
    def is_bounded(self) -> bool:
        first, second = self.halves
        return second <= first * (1 + self.more_share) + self.more


def main() -> int:
    """The exit status: 0 if all is bounded, 1 if not."""
    options = _options()
    console = Console(width=None if sys.stdout.isatty() else 100)
    with Stage() as stage, _installation(stage, options) as party:
        grown = _run(party, options, console)
    if options.json:
        options.json.write_text(json.dumps({g.name: g.values for g in grown.values()}, indent=1))
    return int(_tell(grown, console))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=DAY_MINUTES, help="default: a day")
    parser.add_argument("--keep-minutes", type=float, default=60.0, help="default: 60")
    parser.add_argument("--rate", type=int, default=20, help="executions a second (default 20)")
    parser.add_argument("--embedded", action="store_true", help="SQLite, without servers")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every value")
    options = parser.parse_args()
    least = (SETTLED_AFTER + 2) * options.keep_minutes
    if options.minutes < least:
        parser.error(f"--minutes {options.minutes:g}: expected at least {least:g}, to keep "
                     f"{options.keep_minutes:g}")  # fmt: skip
    if options.rate < 1:
        parser.error(f"--rate {options.rate}: expected at least 1")
    return options


def _installation(stage: Stage, options: argparse.Namespace) -> Any:
    kept: dict[str, Any] = dict.fromkeys(KEPT, options.keep_minutes / DAY_MINUTES)
    interval = max(1.0, min(60.0, options.keep_minutes * 60 / 10))
    manage = SHORT if options.keep_minutes < LEAST_KEPT_MINUTES else ("manage.py",)
    return stage.muster(
        slots=4, embedded=options.embedded, manage=manage,
        prune_interval_seconds=interval, **kept,
    )  # fmt: skip


def _run(party: Muster, options: argparse.Namespace, console: Console) -> dict[str, Growth]:
    grown: dict[str, Growth] = {}
    seconds = min(MOST_SAMPLE_SECONDS, options.keep_minutes * 60 / 8)
    Door(party, "manage.py", "api", "--port")
    party.remote.call("begin_soak")
    began = time.monotonic()
    settled_at = began + SETTLED_AFTER * options.keep_minutes * 60
    while time.monotonic() < began + options.minutes * 60:
        party.remote.call("soak", seconds=seconds, rate=options.rate)
        values = list(_values(party))
        counts = time.monotonic() >= settled_at
        if counts:
            for one in values:
                grown.setdefault(one.name, replace(one, values=[])).values += one.values
        _progress(console, time.monotonic() - began, values, counts=counts)
    return grown


def _values(party: Muster) -> Iterator[Growth]:
    """The values that there are now."""
    for name, rows in party.remote.call("table_rows").items():
        yield Growth(name, "rows", MORE_ROWS, MORE_ROWS_SHARE, [rows])
    still_open = party.remote.call("open_executions")
    yield Growth("open", "executions", MORE_ROWS, MORE_ROWS_SHARE, [still_open])
    for name in party.services:
        mb = sum(each.memory_full_info().uss for each in party.tree(name)) / 1e6
        yield Growth(name, "MB", MORE_MB, MORE_MB_SHARE, [mb])
    mb = party.remote.call("database_bytes") / 1e6
    yield Growth("database", "MB", MORE_MB, MORE_MB_SHARE, [mb])


def _progress(console: Console, seconds: float, values: Sequence[Growth], *, counts: bool) -> None:
    rows = sum(one.values[0] for one in values if one.unit == "rows")
    sizes = ", ".join(f"{one.name} {one.values[0]:,.0f} MB" for one in values if one.unit == "MB")
    state = "" if counts else "  (fills)"
    console.print(f"{seconds / 60:8.1f} min  {rows:9,.0f} rows  {sizes}{state}", highlight=False)


def _tell(grown: Mapping[str, Growth], console: Console) -> bool:
    """Print the two halves of everything; returns True if something is not bounded."""
    table = Table(title="The middle of the first half, and of the second", title_justify="left")
    for heading in ("what", "", "first", "second", ""):
        table.add_column(heading, justify="right" if heading in ("first", "second") else "left")
    found = sorted(grown.values(), key=lambda one: (one.is_bounded, one.unit, -one.halves[1]))
    for one in found:
        first, second = one.halves
        if max(first, second) >= 1:
            verdict = "" if one.is_bounded else "[red]grows[/red]"
            table.add_row(one.name, one.unit, f"{first:,.0f}", f"{second:,.0f}", verdict)
    console.print(table)
    growing = [one.name for one in found if not one.is_bounded]
    console.print(f"grows: {', '.join(growing)}" if growing else "all is bounded")
    return bool(growing)


if __name__ == "__main__":
    sys.exit(main())
