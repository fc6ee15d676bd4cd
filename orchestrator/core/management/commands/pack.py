"""`manage.py pack`: check, install and list packs."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any, NoReturn

from django.core.management.base import BaseCommand
from rich.console import Console
from rich.table import Table

from orchestrator.core import checks, clock, packs
from orchestrator.core.models import Pack


class Command(BaseCommand):
    requires_system_checks = (checks.CONFIGURATION,)
    help = "Check, install and list packs: folders of actions."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, title="verbs")
        install = verbs.add_parser("install", help="Install a pack, or what changed in it.")
        install.add_argument("path", help="The pack's folder.")
        validate = verbs.add_parser("validate", help="Check a pack; touches no database.")
        validate.add_argument("path", help="The pack's folder.")
        listing = verbs.add_parser("list", help="The packs that are installed.")
        listing.add_argument("--json", action="store_true", dest="as_json")

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        if verb == "list":
            self.list_installed(as_json=options["as_json"])
        elif verb == "install":
            self.install(options["path"])
        else:
            self.validate(options["path"])

    def validate(self, path: str) -> None:
        definition = self._load(path)
        table = _table(f"{definition.name} {definition.version} is valid")
        for action in definition.actions:
            table.add_row(action.ref, action.runtime, action.description)
        for kind in packs.kinds():
            for values in definition.contents.get(kind.folder, ()):
                names = (values[key] for key in kind.name_keys)
                noun = kind.folder.removesuffix("s")
                table.add_row("/".join(names), noun, values.get("description", ""))
        self._show(table)

    def install(self, path: str) -> None:
        definition = self._load(path)
        try:
            report = packs.install(definition, now=clock.now())
        except packs.RefTaken as error:
            self._refuse([f"{path}: {error}"])
        table = Table(title=f"{report.pack} {report.version}", title_justify="left")
        for heading in ("created", "updated", "unchanged", "disabled"):
            table.add_column(heading, justify="right")
        groups = (report.created, report.updated, report.unchanged, report.disabled)
        table.add_row(*(str(len(group)) for group in groups))
        self._show(table)

    def list_installed(self, *, as_json: bool) -> None:
        found = [_described(pack) for pack in Pack.objects.prefetch_related("actions")]
        if as_json:
            self.stdout.write(json.dumps(found, indent=2))
            return
        for pack in found:
            table = _table(f"{pack['name']} {pack['version']}  {pack['path']}")
            for action in pack["actions"]:
                state = "" if action["enabled"] else " (disabled)"
                table.add_row(action["ref"] + state, action["runtime"], action["description"])
            self._show(table)
        if not found:
            self.stdout.write("No pack is installed. Install one: manage.py pack install PATH")

    def _load(self, path: str) -> packs.PackDefinition:
        try:
            return packs.load(path)
        except packs.InvalidPack as error:
            self._refuse([str(problem) for problem in error.problems])

    def _refuse(self, problems: list[str]) -> NoReturn:
        for problem in problems:
            self.stderr.write(problem)
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        self.stderr.write(f"{count}; nothing was changed.")
        raise SystemExit(1)

    def _show(self, table: Table) -> None:
        console = Console(file=self.stdout)  # type: ignore[arg-type]
        console.print(table, width=min(console.width, 100) if console.is_terminal else 100)


def _table(title: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("action", overflow="fold")
    table.add_column("runtime")
    table.add_column("description")
    return table


def _described(pack: Pack) -> dict[str, Any]:
    return {
        "name": pack.name,
        "version": pack.version,
        "description": pack.description,
        "path": pack.path,
        "installed_at": pack.installed_at.isoformat(),
        "actions": [
            {
                "ref": action.ref,
                "runtime": action.runtime,
                "description": action.description,
                "enabled": action.enabled,
            }
            for action in pack.actions.all()
        ],
    }
