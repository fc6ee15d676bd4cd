"""`manage.py prune`: remove what is older than the settings keep it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.core.management.base import CommandParser

from orchestrator.core import clock, retention
from orchestrator.core.management import output


class Command(output.MusterCommand):
    help = (
        "Remove executions, tasks, closed investigations and retired workers that are older than "
        "the settings MUSTER_KEEP_... keep them, now; beat does it all the time."
    )
    permissions = {"": "retention.prune"}

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--dry-run", action="store_true", help="Count what would go; remove nothing."
        )
        output.add_json(parser)

    def handle(self, *args: Any, dry_run: bool, as_json: bool, **options: Any) -> None:
        counts = self._count() if dry_run else self._prune(quiet=as_json)
        if as_json:
            self.show_json(counts)
            return
        said = ", ".join(f"{number:,} {kind}" for kind, number in counts.items() if number)
        self.stdout.write(f"{'Would remove' if dry_run else 'Removed'} {said or 'nothing'}.")

    def _count(self) -> dict[str, int]:
        return {each.kind.name: each.rows().count() for each in retention.old(now=clock.now())}

    def _prune(self, *, quiet: bool) -> dict[str, int]:
        """Remove everything, and say from time to time how far it is."""
        total = Counter(dict.fromkeys((e.kind.name for e in retention.old(now=clock.now())), 0))
        while removed := retention.prune(now=clock.now()):
            total.update(removed)
            if not quiet:
                self.stderr.write(f"{sum(total.values()):,} rows so far ...")
        return dict(total)
