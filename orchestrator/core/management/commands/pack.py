"""`manage.py pack`: check, install and list packs."""

from __future__ import annotations

from typing import Any, NoReturn

from django.core.management.base import CommandParser
from rich.text import Text

from orchestrator.core import clock, isolation, packs
from orchestrator.core.management import output
from orchestrator.core.management.output import plain
from orchestrator.core.management.tables import Table
from orchestrator.core.models import Pack


class Command(output.MusterCommand):
    help = "Check, install and list packs: folders of actions."
    permissions = {
        "install": "packs.install",
        "validate": output.NOBODY,
        "list": "actions.read",
    }

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, title="verbs")
        install = verbs.add_parser("install", help="Install a pack, or its changes.")
        install.add_argument("path", help="The pack's folder.")
        validate = verbs.add_parser("validate", help="Check a pack; touches no database.")
        validate.add_argument("path", help="The pack's folder.")
        listing = verbs.add_parser("list", help="Installed packs.")
        output.add_json(listing)

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        if verb == "list":
            self.list_installed(as_json=options["as_json"])
        elif verb == "install":
            self.install(options["path"])
        else:
            self.validate(options["path"])

    def validate(self, path: str) -> None:
        definition = self._load(path)
        table = _table()
        for action in definition.actions:
            name = action.ref + (" (dangerous)" if action.dangerous else "")
            _add(table, name, action.runtime, action.isolation, action.description)
        for kind in packs.kinds():
            for values in definition.contents.get(kind.folder, ()):
                names = "/".join(values[key] for key in kind.name_keys)
                noun = kind.folder.removesuffix("s")
                _add(table, names, noun, "", values.get("description", ""))
        self._show(f"{definition.name} {definition.version} is valid", table)
        self._note(definition)
        levels = {action.isolation for action in definition.actions}
        for level in sorted(levels, key=isolation.LEVELS.index):
            if note := isolation.note(level):
                self.stdout.write(f"isolation {level}: {note}")

    def install(self, path: str) -> None:
        definition = self._load(path)
        try:
            report = packs.install(definition, now=clock.now(), principal=self.principal)
        except packs.RefTaken as error:
            self._refuse([f"{path}: {error}"])
        except packs.InvalidPack as error:
            self._refuse([str(problem) for problem in error.problems])
        table = Table(">created", ">updated", ">unchanged", ">disabled")
        groups = (report.created, report.updated, report.unchanged, report.disabled)
        table.add_row(*(str(len(group)) for group in groups))
        self._show(f"{report.pack} {report.version}", table)
        self._note(definition)

    def list_installed(self, *, as_json: bool) -> None:
        packs_seen = self.visible(Pack.objects).prefetch_related("actions")
        installed = [_described(pack) for pack in packs_seen]
        if as_json:
            self.show_items(installed)
            return
        for pack in installed:
            table = _table()
            for action in pack["actions"]:
                notes = [n for n in ("dangerous", "disabled") if _is(action, n)]
                name = action["ref"] + (f" ({', '.join(notes)})" if notes else "")
                _add(table, name, action["runtime"], action["isolation"], action["description"])
            self._show(f"{pack['name']} {pack['version']}  {pack['path']}", table)
        if not installed:
            self.stdout.write("No pack is installed. Install one: manage.py pack install PATH")

    def _load(self, path: str) -> packs.PackDefinition:
        try:
            return packs.load(path)
        except packs.InvalidPack as error:
            self._refuse([str(problem) for problem in error.problems])

    def _note(self, definition: packs.PackDefinition) -> None:
        for note in definition.notes:
            self.stdout.write(str(plain(f"note: {note}")))

    def _refuse(self, problems: list[str]) -> NoReturn:
        for problem in problems:
            self.stderr.write(str(plain(problem)))
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        self.stderr.write(f"{count}; nothing was changed.")
        raise SystemExit(1)

    def _show(self, title: str, table: Table) -> None:
        self.show(Text.assemble(plain(title), style="bold"), table, "")


def _table() -> Table:
    return Table("action", "runtime", "isolation", "*description")


def _is(action: dict[str, Any], what: str) -> bool:
    return not action["enabled"] if what == "disabled" else bool(action[what])


def _add(table: Table, *cells: str) -> None:
    """Add a row of texts that a pack has written."""
    table.add_row(*map(plain, cells))


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
                "isolation": action.isolation,
                "description": action.description,
                "enabled": action.enabled,
                "dangerous": action.dangerous,
            }
            for action in pack.actions.all()
        ],
    }
