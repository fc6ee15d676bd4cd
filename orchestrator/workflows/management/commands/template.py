"""`manage.py template`: list, show, check and install task templates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from orchestrator.core import clock, packs
from orchestrator.core.management import arguments, output
from orchestrator.core.shown.documents import document
from orchestrator.workflows import task_templates
from orchestrator.workflows.management import task_tables
from orchestrator.workflows.models import TaskTemplate
from orchestrator.workflows.shown import templates as shown
from orchestrator.workflows.task_templates import TemplateDefinition

SUFFIXES = (".yaml", ".yml")


class Command(output.MusterCommand):
    help = "Task templates: list, show, check, install."
    permissions = {
        "list": "templates.read",
        "show": "templates.read",
        "validate": output.NOBODY,
        "install": "templates.install",
    }

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, title="verbs")
        listing = verbs.add_parser("list", help="Installed templates.")
        listing.add_argument("--namespace")
        output.add_json(listing)
        show = verbs.add_parser("show", help="One template, step by step.")
        show.add_argument(
            "template", type=arguments.template_ref(parts=3), metavar="NAMESPACE/NAME/VERSION"
        )
        output.add_json(show)
        validate = verbs.add_parser("validate", help="Check templates; touches no database.")
        _add_paths(validate)
        output.add_json(validate)
        install = verbs.add_parser("install", help="Install templates: all of them, or none.")
        _add_paths(install)
        output.add_json(install)

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        verbs: dict[str, Callable[..., None]] = {
            "list": self.list_rows,
            "show": self.show_one,
            "validate": self.validate,
            "install": self.install,
        }
        verbs[verb](**options)

    def list_rows(self, *, namespace: str | None, as_json: bool, **options: Any) -> None:
        rows = self.visible(TaskTemplate.objects).select_related("pack").defer("definition")
        if namespace:
            rows = rows.filter(namespace=namespace)
        templates = list(rows)
        if as_json:
            self.show_items(document(shown.summary(template)) for template in templates)
        elif not templates:
            self.stdout.write("No template. Install one: manage.py template install PATH")
        else:
            self.show(task_tables.templates(templates))

    def show_one(self, *, template: list[str], as_json: bool, **options: Any) -> None:
        namespace, name, version = template
        rows = self.visible(TaskTemplate.objects).filter(namespace=namespace, name=name)
        row = rows.select_related("pack").filter(version=version).first()
        if row is None:
            others = ", ".join(rows.values_list("version", flat=True))
            hint = f"; its versions are {others}" if others else "; see: manage.py template list"
            raise CommandError(f"No template is called {'/'.join(template)}{hint}")
        if as_json:
            self.show_json(document(shown.detail(row)))
        else:
            definition = TemplateDefinition.of(row.definition)
            self.show(task_tables.templates([row]), *task_tables.template_page(definition))

    def validate(self, *, paths: list[str], as_json: bool, **options: Any) -> None:
        definitions = self._load(paths, as_json=as_json)
        if as_json:
            self.show_json(
                {"templates": [_ref(each) for each in definitions.values()], "problems": []}
            )
            return
        for path, values in definitions.items():
            definition = TemplateDefinition.of(values)
            self.stdout.write(f"{path}: {_ref(values)} is valid, {len(definition.steps)} steps")
            self.show(*task_tables.template_page(definition))

    def install(self, *, paths: list[str], as_json: bool, **options: Any) -> None:
        definitions = self._load(paths, as_json=as_json)
        report = asdict(
            task_templates.install_templates(
                list(definitions.values()), now=clock.now(), principal=self.principal
            )
        )
        if as_json:
            self.show_json(report)
            return
        for what in ("created", "updated", "unchanged"):
            for ref in report[what]:
                self.stdout.write(f"{ref} {what}")

    def _load(self, paths: list[str], *, as_json: bool) -> dict[Path, dict[str, Any]]:
        """Load the templates by their files. Shows all problems, and exits if there are any."""
        loaded: dict[Path, dict[str, Any]] = {}
        problems: list[packs.SourceProblem] = []
        for path in _files(paths):
            try:
                loaded[path] = task_templates.load_template(path)
            except task_templates.InvalidTemplate as error:
                problems += error.problems
        if not problems:
            return loaded
        if as_json:
            keys = ("file", "line", "column", "message")
            self.show_json(
                {"templates": [], "problems": [output.described(p, keys) for p in problems]}
            )
        for problem in problems if not as_json else ():
            self.stderr.write(str(output.plain(problem)))
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        self.stderr.write(f"{count}; nothing was changed.")
        raise SystemExit(1)


def _add_paths(parser: CommandParser) -> None:
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="Files, or folders of them (*.yaml)."
    )


def _files(paths: list[str]) -> list[Path]:
    files: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            files += sorted(each for each in path.iterdir() if each.suffix in SUFFIXES)
        else:
            files.append(path)
    if not files:
        raise CommandError(f"{', '.join(paths)}: no *.yaml there")
    return files


def _ref(values: dict[str, Any]) -> str:
    return f"{values['namespace_name']}/{values['name']}/{values['version']}"
