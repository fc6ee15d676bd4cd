"""`manage.py import-st2`: make a pack of Muster of a pack of StackStorm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser
from rich.text import Text

from orchestrator.automation import st2
from orchestrator.automation.st2.report import CHANGED, LEFT_OUT
from orchestrator.core.management import output


class Command(output.MusterCommand):
    permissions = {"": output.NOBODY}
    help = (
        "Make a pack of a pack of StackStorm. Lists, with file and line, what has no equal here. "
        "Touches no database: install the new folder with `manage.py pack install`."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("path", type=Path, help="The folder of StackStorm's pack.")
        parser.add_argument(
            "--into",
            type=Path,
            default=Path("packs"),
            metavar="DIR",
            help="Where the new folder is made, with the pack's name. (default: packs)",
        )
        output.add_json(parser)

    def handle(self, *args: Any, path: Path, into: Path, as_json: bool, **options: Any) -> None:
        report = st2.import_pack(path, into=into)
        if as_json:
            self.show_json(report.document())
            return
        for kind in (CHANGED, LEFT_OUT):
            if found := report.of(kind):
                self.show(Text(f"{kind}: {len(found)}", style="bold"))
                for each in found:
                    self.say(f"  {each}")
        self.say(f"{report.folder}: {len(report.made)} files. It is a valid pack.")
