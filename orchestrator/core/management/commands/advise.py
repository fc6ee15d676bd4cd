"""`manage.py advise`: advice on waits and time limits of actions, and on code that hosts lack."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser
from rich.text import Text

from orchestrator.core import advice, clock, fleet, words
from orchestrator.core.advice import Advice, Lack, Limit
from orchestrator.core.management import arguments, output
from orchestrator.core.management.tables import Table

VERDICT_STYLES = {"fits": "green", "short": "red", "long": "yellow"}


class Command(output.MusterCommand):
    help = "Advise on waits and time limits of actions that are out of line, and on missing code."
    permissions = {"": "metrics.read"}

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--days",
            type=arguments.whole(1, 366),
            default=7,
            metavar="N",
            help="The number of days to look back (7).",
        )
        parser.add_argument(
            "--all",
            action="store_true",
            dest="everything",
            help="Show every action that ran, and what the rule gives for it.",
        )
        output.add_json(parser)

    def handle(
        self, *args: Any, days: int, everything: bool, as_json: bool, **options: Any
    ) -> None:
        advised = advice.advise(days=days, now=clock.now())
        lacks = advice.lacks()
        if as_json:
            self.show_json(
                {
                    "actions": [_document(each) for each in advised],
                    "missing_code": [asdict(each) for each in lacks],
                }
            )
            return
        for lack in lacks:
            self.say(_lack_text(lack))
        if not advised:
            self.stdout.write(f"No action completed in the last {days} days.")
        elif everything:
            self.show(_overview(advised))
        else:
            self._show_changes(advised)

    def _show_changes(self, advised: Sequence[Advice]) -> None:
        changes = [(each, list(advice.changes(each))) for each in advised]
        table = Table("action", "set", ">now", ">to", "*because")
        for each, rows in changes:
            for row in rows:
                table.add_row(output.plain(each.action_ref), row.key, row.now, row.to, row.why)
        if table.rows:
            self.show(table)
        fitting = sum(not rows for _, rows in changes)
        noun = "action needs" if fitting == 1 else "actions need"
        if fitting:
            self.stdout.write(f"{fitting} {noun} no change: --all shows them.")


def _lack_text(lack: Lack) -> str:
    folder, parent = shlex.quote(lack.pack_path), shlex.quote(str(Path(lack.pack_path).parent))
    return (
        f"{lack.worker} lacks {fleet.named(lack.name)}: {lack.why}. It gets no work that needs "
        "it. Copy the pack's folder to the same path on its host, from a host that has it: "
        f"rsync -a {folder} {lack.host}:{parent}/. The worker checks every few seconds and needs "
        "no restart, unless it has an older version of the pack in memory."
    )


def _overview(advised: Sequence[Advice]) -> Table:
    """Every action, with the ranges of the rule."""
    table = Table(
        *("action", ">runs", ">typical", ">slowest", ">wait", "", "rule"),
        *(">limit", "", "rule", ">expired", ">would run"),
    )
    for each in advised:
        table.add_row(
            output.plain(each.action_ref),
            str(each.runs),
            words.span(each.typical_seconds),
            words.span(each.slowest_seconds),
            *(words.span(each.wait.now), _verdict(each.wait), each.wait.allowed),
            *(words.span(each.run.now), _verdict(each.run), each.run.allowed),
            str(each.expired),
            str(each.would_have_run),
        )
    return table


def _verdict(limit: Limit) -> Text:
    return Text(limit.verdict, style=VERDICT_STYLES[limit.verdict])


def _document(each: Advice) -> dict[str, Any]:
    document = asdict(each)
    for name in ("wait", "run"):
        limit: Limit = getattr(each, name)
        document[name] |= {"verdict": limit.verdict, "advised": limit.advised}
    return document
