"""`manage.py pack`: check, compare, install, list and remove packs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from django.core.management.base import CommandParser
from rich.text import Text

from orchestrator.core import authority, clock, isolation, packs
from orchestrator.core.authority import Place
from orchestrator.core.errors import Conflict, NotFound, Unavailable
from orchestrator.core.executions import removal
from orchestrator.core.frame import PACKS
from orchestrator.core.management import output
from orchestrator.core.management.output import plain
from orchestrator.core.management.tables import Table
from orchestrator.core.models import Pack, Release
from orchestrator.core.packs import archives, differences, releases
from orchestrator.core.shown import packs as shown

LOOK_SECONDS = 1.0
"""Between two looks at what a removal waits for."""


class Command(output.MusterCommand):
    help = "Check, compare, install, list and remove packs: folders of actions."
    permissions = {
        "install": "packs.install",
        "upgrade": "packs.install",
        "validate": output.NOBODY,
        "diff": "actions.read",
        "remove": "packs.install",
        "releases": "actions.read",
        "list": "actions.read",
    }

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, title="verbs")
        for name, text in (
            ("install", "Install a pack, or its changes."),
            ("upgrade", "Install a release of a pack that is installed."),
        ):
            install = verbs.add_parser(name, help=text)
            install.add_argument(
                "path", help="The pack's folder, or a .tar, .tar.gz or .zip of it."
            )
            install.add_argument(
                "--linked",
                action="store_true",
                help="For development: no release; workers read the code in this folder, as it is.",
            )
            install.add_argument(
                "--accept-breaking",
                action="store_true",
                help="Disable rules and templates of other packs that would break.",
            )
        validate = verbs.add_parser("validate", help="Check a pack; touches no database.")
        validate.add_argument("path", help="The pack's folder, or a .tar, .tar.gz or .zip of it.")
        diff = verbs.add_parser("diff", help="Show what an installation would change.")
        diff.add_argument("path", help="The pack's folder, or a .tar, .tar.gz or .zip of it.")
        output.add_json(diff)
        remove = verbs.add_parser("remove", help="Remove a pack; its past stays readable.")
        remove.add_argument("name")
        how = remove.add_mutually_exclusive_group()
        how.add_argument(
            "--drain", action="store_true", help="Refuse new requests, and wait for what is open."
        )
        how.add_argument(
            "--cancel", action="store_true", help="Refuse new requests, and cancel what is open."
        )
        remove.add_argument(
            "--accept-breaking",
            action="store_true",
            help="Disable rules and templates of other packs that would break.",
        )
        remove.add_argument(
            "--wait-seconds", type=float, default=float("inf"), help="Longest wait."
        )
        listed = verbs.add_parser("releases", help="The releases of a pack, the newest first.")
        listed.add_argument("name")
        output.add_json(listed)
        listing = verbs.add_parser("list", help="Installed packs.")
        output.add_json(listing)

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        if verb == "list":
            self.list_installed(as_json=options["as_json"])
        elif verb in ("install", "upgrade"):
            self.install(verb=verb, **_only(options, "path", "linked", "accept_breaking"))
        elif verb == "validate":
            self.validate(options["path"])
        elif verb == "diff":
            self.diff(options["path"], as_json=options["as_json"])
        elif verb == "releases":
            self.list_releases(options["name"], as_json=options["as_json"])
        else:
            names = "name", "drain", "cancel", "accept_breaking", "wait_seconds"
            self.remove(**_only(options, *names))

    # --- checking and installing

    def validate(self, path: str) -> None:
        with self._refusing(path), self._loaded(path) as (content, definition):
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
            self.stdout.write(f"release {content.digest[:12]}, {len(content.files)} files")
            self._note(definition)
            levels = {action.isolation for action in definition.actions}
            for level in sorted(levels, key=isolation.LEVELS.index):
                if note := isolation.note(level):
                    self.stdout.write(f"isolation {level}: {note}")

    def install(self, *, verb: str, path: str, linked: bool, accept_breaking: bool) -> None:
        with self._refusing(path):
            if linked:
                definition = packs.load(path)
                report = self._install(verb, definition, None, accept_breaking)
            else:
                with self._loaded(path) as (content, definition):
                    report = self._install(verb, definition, content, accept_breaking)
        table = Table(">created", ">updated", ">unchanged", ">disabled")
        groups = (report.created, report.updated, report.unchanged, report.disabled)
        table.add_row(*(str(len(group)) for group in groups))
        how = f"release {report.release[:12]}" if report.release else f"linked to {definition.path}"
        self._show(f"{report.pack} {report.version}  {how}", table)
        for ref in report.broken:
            self.stdout.write(str(plain(f"disabled, as it would break: {ref}")))
        self._note(definition)

    def _install(
        self,
        verb: str,
        definition: packs.PackDefinition,
        content: packs.Content | None,
        accepts_breaking: bool,
    ) -> packs.InstallReport:
        if verb == "upgrade":
            releases.find(definition.name)
        return packs.install(
            definition,
            content=content,
            accepts_breaking=accepts_breaking,
            now=clock.now(),
            principal=self.principal,
        )

    def diff(self, path: str, *, as_json: bool) -> None:
        with self._refusing(path), self._loaded(path) as (content, definition):
            self._require_visible(definition.name)
            difference = differences.between(definition, content)
        if as_json:
            self.show_json(asdict(difference))
            return
        before = difference.before or "not installed"
        table = Table("what", "name", "how", "*details")
        for change in difference.changes:
            _add(table, change.what, change.name, change.how, ", ".join(change.details))
        title = f"{difference.pack} {before} -> {difference.after}  {content.digest[:12]}"
        if difference.is_none:
            self.stdout.write(f"{title}: nothing would change")
        else:
            self._show(title, table)
        for broken in difference.broken:
            self.stdout.write(str(plain(f"would break: {broken}")))

    # --- removing

    def remove(
        self, *, name: str, drain: bool, cancel: bool, accept_breaking: bool, wait_seconds: float
    ) -> None:
        with self._refusing(name):
            self._require_visible(name)
            if drain or cancel:
                removal.begin(
                    name,
                    now=clock.now(),
                    principal=self.principal,
                    accepts_breaking=accept_breaking,
                    cancels=cancel,
                )
                self._empty(name, cancel=cancel, until=time.monotonic() + wait_seconds)
            removed = removal.finish(
                name,
                now=clock.now(),
                principal=self.principal,
                accepts_breaking=accept_breaking,
            )
        self.stdout.write(
            f"{removed.pack} {removed.version} is removed: {len(removed.actions)} actions, "
            f"{len(removed.disabled)} other definitions. Its past stays readable."
        )

    def _empty(self, name: str, *, cancel: bool, until: float) -> None:
        """Wait until nothing open needs the pack, or until the time is up: however short that is,
        what is open is cancelled, or told, once."""
        before = -1
        while (work := removal.open_work(name, seen_by=self.principal)).total:
            if cancel:
                removal.cancel(
                    name, by=self.principal.actor, now=clock.now(), principal=self.principal
                )
            if work.total != before:
                first = f", the oldest is {work.listed[0]}" if work.listed else ""
                self.stdout.write(f"waiting for {work.total} open{first}")
                self.stdout.flush()
            before = work.total
            if time.monotonic() >= until:
                break
            time.sleep(LOOK_SECONDS)

    # --- listing

    def list_releases(self, name: str, *, as_json: bool) -> None:
        self._require_visible(name)
        rows = Release.objects.filter(pack__name=name).select_related("pack")
        described = [shown.release(each).model_dump(mode="json") for each in rows]
        if as_json:
            self.show_items(described)
            return
        table = Table("release", "version", "state", "installed", ">files", ">bytes")
        for each in described:
            cells = each["digest"][:12], each["version"], each["state"], each["installed_at"][:19]
            _add(table, *cells, str(each["files"]), f"{each['size']:,}")
        self._show(name, table)

    def list_installed(self, *, as_json: bool) -> None:
        seen = self.visible(Pack.objects.installed()).select_related("release")
        installed = [_described(pack) for pack in seen.prefetch_related("actions")]
        if as_json:
            self.show_items(installed)
            return
        for pack in installed:
            table = _table()
            for action in pack["actions"]:
                notes = [n for n in ("dangerous", "disabled") if _is(action, n)]
                name = action["ref"] + (f" ({', '.join(notes)})" if notes else "")
                _add(table, name, action["runtime"], action["isolation"], action["description"])
            how = f"release {pack['release'][:12]}" if pack["release"] else pack["path"]
            self._show(f"{pack['name']} {pack['version']}  {how}", table)
        if not installed:
            self.stdout.write("No pack is installed. Install one: manage.py pack install PATH")

    # --- helpers

    @contextmanager
    def _loaded(self, path: str) -> Iterator[tuple[packs.Content, packs.PackDefinition]]:
        content = archives.read(path)
        place = str(Path(path).resolve())
        with releases.loaded(content, name=path, path=place) as definition:
            yield content, definition

    @contextmanager
    def _refusing(self, path: str) -> Iterator[None]:
        """End with all problems if the pack, or what it would change, is refused."""
        try:
            yield
        except (packs.InvalidPack, packs.NotPackable) as error:
            self._refuse([str(problem) for problem in error.problems])
        except packs.WouldBreak as error:
            hint = "disable them with --accept-breaking"
            self._refuse([f"{path}: would break the {each}" for each in error.broken], hint)
        except (packs.RefTaken, Conflict, NotFound, Unavailable) as error:
            self._refuse([f"{path}: {error}"])

    def _require_visible(self, name: str) -> None:
        if self.principal is not None:
            authority.require(self.principal, "actions.read", Place(PACKS, name))

    def _note(self, definition: packs.PackDefinition) -> None:
        for note in definition.notes:
            self.stdout.write(str(plain(f"note: {note}")))

    def _refuse(self, problems: list[str], hint: str = "") -> NoReturn:
        for problem in problems:
            self.stderr.write(str(plain(problem)))
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        self.stderr.write(
            f"{count}; nothing was changed." + (f" To go on, {hint}." if hint else "")
        )
        raise SystemExit(1)

    def _show(self, title: str, table: Table) -> None:
        self.show(Text.assemble(plain(title), style="bold"), table, "")


def _only(options: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: options[name] for name in names}


def _table() -> Table:
    return Table("action", "runtime", "isolation", "*description")


def _is(action: dict[str, Any], what: str) -> bool:
    return not action["enabled"] if what == "disabled" else bool(action[what])


def _add(table: Table, *cells: str) -> None:
    """Add a row of texts that a pack has written."""
    table.add_row(*map(plain, cells))


def _described(pack: Pack) -> dict[str, Any]:
    return shown.detail(pack).model_dump(mode="json")
