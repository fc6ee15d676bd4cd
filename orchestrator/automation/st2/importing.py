"""Import of a whole pack: every file is read, converted, written and checked as ours.

1. Each file of the pack becomes an `Item`; what cannot be converted is noted with its place.
2. Code is copied as it is; Python actions get a module with a function for each.
3. The new folder is checked as `pack validate` does. What Muster refuses of it is taken out
   again, and noted: the rest is a pack that can be installed.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from orchestrator.automation.st2 import actions, contents, rules, triggers, writing
from orchestrator.automation.st2.report import Item, NotConvertible, Report
from orchestrator.core import packs
from orchestrator.core.errors import MusterError
from orchestrator.core.packs import Source
from orchestrator.core.packs import source as sources

DESCRIPTIONS = (".yaml", ".yml", ".json")
"""The endings of the files that StackStorm reads; JSON is YAML."""

LINK = "a link: it may lead out of the pack"

NOT_OURS = {
    "aliases": "commands for a chat: Muster has no chat; an action can call its API, and a webhook "
    "can be called by it",
}


class CannotImport(MusterError):
    """The folder is not a pack of StackStorm, or its name is taken."""


def import_pack(path: Path, *, into: Path) -> Report:
    """Convert the pack in a folder into a new one below `into`. Raises CannotImport; then nothing
    is written."""
    found = _Pack(path)
    target = into / found.name
    if target.exists():
        raise CannotImport(f"{target} exists already: remove it, or import into another folder")
    report = Report(found.name, target)
    with tempfile.TemporaryDirectory(prefix="muster-import-") as temporary:
        folder = Path(temporary) / found.name
        _Import(found, folder, report).run()
        into.mkdir(parents=True, exist_ok=True)
        shutil.copytree(folder, target)
    return report


class _Pack:
    """A pack of StackStorm on disk."""

    def __init__(self, path: Path) -> None:
        self.folder = path.resolve()
        file = self.folder / "pack.yaml"
        if file.is_symlink():
            raise CannotImport(f"{file} is {LINK}")
        self.source = sources.read(file)
        if not isinstance(self.source.value, dict):
            problems = "; ".join(map(str, self.source.problems))
            raise CannotImport(f"expected a pack of StackStorm: {problems}")
        values = self.source.value
        self.theirs = str(values.get("ref") or values.get("name") or path.name)
        self.name = triggers.pack_name(self.theirs)


class _Import:
    """One import, into a folder that nobody sees yet."""

    def __init__(self, pack: _Pack, folder: Path, report: Report) -> None:
        self.pack, self.folder, self.report = pack, folder, report
        self.items: dict[str, Item] = {}
        """Of what was written, by its file."""
        self.functions: list[actions.Function] = []
        self.defaults: dict[str, dict[str, Any]] = {}
        """Defaults of parameters that callers here must give, by ref."""
        self.config: dict[str, Any] = {}
        self.hooks: dict[str, dict[str, Any]] = {}
        """Parameters of webhooks, by their path."""
        self.rules: list[tuple[dict[str, Any], Item]] = []

    def run(self) -> None:
        self.folder.mkdir()
        writing.copy_code(self.pack.folder, self.folder)
        self._describe()
        self._config()
        self._each("actions", "action", self._action)
        self._each("triggers", "trigger", self._trigger)
        self._each("sensors", "sensor", self._sensor)
        self._each("rules", "rule", self._rule)
        for values, item in self.rules:
            self._write(f"rules/{values['name']}.yaml", values, item)
        self._each("policies", "policy", self._policy)
        self._rest()
        self._write_functions()
        self._take_out_what_is_refused()
        made = (file.relative_to(self.folder) for file in self.folder.rglob("*") if file.is_file())
        self.report.made = sorted(map(str, made))
        (self.folder / writing.REPORT).write_text(writing.report_text(self.report))

    # --- its files

    def _describe(self) -> None:
        values = self.pack.source.value
        item = self._item(self.pack.source, "pack")
        if self.pack.name != self.pack.theirs:
            item.changed(f"its name is {self.pack.name} here: Python imports it", "name")
        for name in ("dependencies", "system"):
            if values.get(name):
                item.left_out("Muster installs no other packs: import them too", name)
        self._write(
            "pack.yaml",
            {
                "name": self.pack.name,
                "version": str(values.get("version") or "0.1.0"),
                "description": " ".join(str(values.get("description") or "").split()),
            },
            item,
        )

    def _action(self, item: Item) -> None:
        taken = {function.name for function in self.functions}
        converted = actions.convert(item, pack=self.pack.name, taken=taken)
        values = converted.values
        if converted.function is not None:
            self.functions.append(converted.function)
        elif (schema := values.get("parameters")) and schema.get("required"):
            self.defaults[f"{self.pack.name}.{values['name']}"] = {
                name: schema["properties"][name]["default"]
                for name in schema["required"]
                if "default" in schema["properties"][name]
            }
        self._write(f"actions/{values['name']}.yaml", values, item)

    def _trigger(self, item: Item) -> None:
        self._type(item, item.source.value)

    def _type(self, item: Item, theirs: Mapping[str, Any]) -> None:
        values = triggers.new_type(theirs)
        if values["name"] != theirs["name"]:
            item.changed(f"its name is {values['name']} here: rules and sensors of the pack may "
                         "go on with the other one, and nobody else", "name")  # fmt: skip
        self._write(f"triggers/{values['name']}.yaml", values, item)

    def _sensor(self, item: Item) -> None:
        values = contents.sensor(item, pack=self.pack.name, config=self.config)
        if self.pack.name != self.pack.theirs:
            item.changed(f"`add_trigger` is given {self.pack.name}.NAME; what it dispatches as "
                         f"{self.pack.theirs}.NAME is the same", "trigger_types")  # fmt: skip
        for kind in contents.declared_types(item):
            self._type(item, kind)
        self._write(f"sensors/{values['name']}.yaml", values, item)

    def _rule(self, item: Item) -> None:
        values = rules.convert(item, pack=self.pack.name, defaults=self.defaults, hooks=self.hooks)
        # written when all are read: another rule may need one more header of its webhook
        self.rules.append((values, item))

    def _policy(self, item: Item) -> None:
        values = contents.policy(item, own=self.pack.name)
        self._write(f"policies/{values['name']}.yaml", values, item)

    def _config(self) -> None:
        file = self.pack.folder / "config.schema.yaml"
        if not file.is_file() or file.is_symlink():
            return
        source = sources.read(file)
        if isinstance(source.value, dict):
            item = self._item(source, "configuration")
            self.config = contents.config(item)
            made = json.dumps(self.config, indent=2)
            (self.folder / "config.json").write_text(made + "\n")

    def _rest(self) -> None:
        """Note what is of no use here."""
        for name, why in NOT_OURS.items():
            for file in _descriptions(self.pack.folder / name):
                self._item(Source(file), f"alias {file.stem}").left_out(why)
        for file in writing.links(self.pack.folder):
            self._item(Source(file), file.name).left_out(LINK)

    # --- one by one

    def _each(self, folder: str, noun: str, convert: Callable[[Item], None]) -> None:
        for file in _descriptions(self.pack.folder / folder):
            source = sources.read(file)
            if not isinstance(source.value, dict) or source.problems:
                item = self._item(source, f"{noun} {file.stem}")
                reasons = [problem.message for problem in source.problems]
                item.left_out("; ".join(reasons) or "expected a mapping")
                continue
            values: Mapping[str, Any] = source.value
            name = values.get("name") or values.get("class_name") or file.stem
            item = self._item(source, f"{noun} {name}")
            try:
                convert(item)
            except NotConvertible as why:
                item.left_out(why.reason, *why.where)

    def _item(self, source: Source, name: str) -> Item:
        return Item(source, name, self.pack.folder, self.report)

    def _write(self, name: str, values: Mapping[str, Any], item: Item) -> None:
        file = self.folder / name
        if name in self.items:
            item.left_out(f"{name} was made of another file already", "name")
            return
        self.items[name] = item
        file.parent.mkdir(exist_ok=True)
        file.write_text(yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True))

    def _write_functions(self) -> None:
        if self.functions:
            module = self.folder / f"{actions.MODULE}.py"
            module.write_text(writing.functions_text(self.functions))

    # --- as Muster sees it

    def _take_out_what_is_refused(self) -> None:
        """Remove files until the folder is a pack. What a rule names may go with an action, so it
        is checked again."""
        while True:
            try:
                packs.load(self.folder)
            except packs.InvalidPack as invalid:
                reasons = list(self._refused(invalid))
                if not reasons:
                    raise CannotImport(f"what was made is no pack:\n{invalid}") from None
                for name, why in reasons:
                    (self.folder / name).unlink()
                    self.items.pop(name).left_out(f"Muster refuses what was made of it: {why}")
            else:
                return

    def _refused(self, invalid: packs.InvalidPack) -> Iterator[tuple[str, str]]:
        """The files with problems that can be removed, with all that is wrong with each."""
        found: dict[str, list[str]] = {}
        for problem in invalid.problems:
            file = Path(problem.file)
            name = str(file.relative_to(self.folder)) if file.is_relative_to(self.folder) else ""
            if name in self.items and name != "pack.yaml":
                found.setdefault(name, []).append(problem.message)
        for name, messages in found.items():
            yield name, "; ".join(messages)


def _descriptions(folder: Path) -> list[Path]:
    """The descriptions in a folder. Links are listed, and not followed."""
    if folder.is_symlink():
        return []
    found = (file for file in folder.glob("*") if file.suffix in DESCRIPTIONS and file.is_file())
    return sorted(file for file in found if not file.is_symlink())
