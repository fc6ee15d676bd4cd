"""`manage.py advise`: advice on waits and time limits of actions, and on code that hosts lack."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser
from rich.text import Text

from orchestrator.core import advice, clock, fleet, words
from orchestrator.core.advice import Advice, Lack, Limit
from orchestrator.core.management import arguments, output
from orchestrator.core.management.tables import Table

VERDICT_STYLES = {"fits": "green", "short": "red", "long": "yellow"}


class Command(output.MusterCommand):
    help = (
        "Advise on each action's longest wait (queue_ttl_ms) and time limit, from the last days: "
        "two to five times its typical run, at least 2 min. And list the code that workers lack."
    )
    permissions = {"": "metrics.read"}

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--days",
            type=arguments.whole(1, 366),
            default=7,
            metavar="N",
            help="The number of days to look back (7).",
        )
        output.add_json(parser)

    def handle(self, *args: Any, days: int, as_json: bool, **options: Any) -> None:
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
            return
        self.show(_table(advised))
        for each in advised:
            for line in _sentences(each):
                self.say(line)
        fits = all(each.wait.verdict == each.run.verdict == "fits" for each in advised)
        if fits and not lacks:
            self.stdout.write("Nothing to change.")


def _lack_text(lack: Lack) -> str:
    folder, parent = shlex.quote(lack.pack_path), shlex.quote(str(Path(lack.pack_path).parent))
    return (
        f"{lack.worker} lacks {fleet.named(lack.name)}: {lack.why}. It gets no work that needs "
        "it. Copy the pack's folder to the same path on its host, from a host that has it: "
        f"rsync -a {folder} {lack.host}:{parent}/. The worker checks every few seconds and needs "
        "no restart, unless it has an older version of the pack in memory."
    )


def _table(advised: list[Advice]) -> Any:
    table = Table(
        "*action",
        *(">runs", ">typical", ">slowest", ">wait", "", ">limit", "", ">expired", ">would run"),
    )
    for each in advised:
        table.add_row(
            output.plain(each.action_ref),
            str(each.runs),
            words.span(each.typical_seconds),
            words.span(each.slowest_seconds),
            words.span(each.wait.now),
            _verdict(each.wait),
            words.span(each.run.now),
            _verdict(each.run),
            str(each.expired),
            str(each.would_have_run),
        )
    return table


def _verdict(limit: Limit) -> Text:
    return Text(limit.verdict, style=VERDICT_STYLES[limit.verdict])


def _sentences(each: Advice) -> list[str]:
    lines = []
    if each.wait.verdict != "fits":
        advised = f"queue_ttl_ms: {each.wait.advised * 1000:.0f}"
        queue_ttl_ms = settings.MUSTER.worker_queue_ttl_ms
        if each.wait.advised * 1000 > queue_ttl_ms:
            advised += f", for which MUSTER_WORKER_QUEUE_TTL_MS (now {queue_ttl_ms}) must be raised"
        lines.append(_sentence(each, "waits for a worker", each.wait, advised))
    if each.run.verdict != "fits":
        advised = f"timeout_seconds: {each.run.advised:.0f}"
        lines.append(_sentence(each, "may run", each.run, advised))
    if each.would_have_run:
        lines.append(
            f"{each.action_ref}: {each.would_have_run} of {each.expired} that expired would have "
            f"run within the longest wait that the rule allows: {words.span(each.wait.most)}."
        )
    return lines


def _sentence(each: Advice, what: str, limit: Limit, advised: str) -> str:
    return (
        f"{each.action_ref} {what} at most {words.span(limit.now)}: {limit.verdict}, the rule "
        f"gives {_shown_range(limit)}. Advised: {advised}"
    )


def _shown_range(limit: Limit) -> str:
    least, most = words.span(limit.least), words.span(limit.most)
    return least if least == most else f"{least} to {most}"


def _document(each: Advice) -> dict[str, Any]:
    document = asdict(each)
    for name in ("wait", "run"):
        limit: Limit = getattr(each, name)
        document[name] |= {"verdict": limit.verdict, "advised": limit.advised}
    return document
