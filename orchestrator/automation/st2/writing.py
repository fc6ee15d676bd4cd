"""The files that an import writes besides YAML: the pack's own code, the functions of its Python
actions, and a page about the import."""

from __future__ import annotations

import os
import pprint
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from orchestrator.automation.st2.actions import Function
from orchestrator.automation.st2.report import CHANGED, LEFT_OUT, Finding, Report

REPORT = "IMPORTED.md"

METADATA = ("actions", "sensors", "triggers", "rules", "policies", "aliases")
"""Folders whose YAML files are StackStorm's descriptions: new ones are written."""

NOT_COPIED = {".git", ".circleci", ".github", "__pycache__", "tests", "aliases", "rules",
              "policies", "triggers", "virtualenv"}  # fmt: skip
NOT_COPIED_FILES = {"pack.yaml", "config.schema.yaml"}
SUFFIXES_OF_METADATA = (".yaml", ".yml")


def copy_code(theirs: Path, ours: Path) -> None:
    """Copy what is code or data of the pack, and no description. Links are not followed."""
    for folder, names, files in os.walk(theirs):
        here = Path(folder)
        relative = here.relative_to(theirs)
        names[:] = [name for name in names if not _is_skipped(here / name, relative)]
        for name in files:
            if _is_code(here / name, relative):
                (ours / relative).mkdir(parents=True, exist_ok=True)
                shutil.copy(here / name, ours / relative / name)


def links(folder: Path) -> list[Path]:
    """The links in a pack, which are not followed."""
    found: list[Path] = []
    for here, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != ".git"]
        found += [each for name in (*folders, *files) if (each := Path(here) / name).is_symlink()]
    return sorted(found)


def _is_skipped(folder: Path, parent: Path) -> bool:
    return folder.is_symlink() or (parent == Path() and folder.name in NOT_COPIED)


def _is_code(file: Path, folder: Path) -> bool:
    if file.is_symlink() or not file.is_file() or file.suffix == ".pyc":
        return False
    is_metadata = str(folder) in METADATA and file.suffix in SUFFIXES_OF_METADATA
    is_root_yaml = folder == Path() and file.suffix in SUFFIXES_OF_METADATA
    return not (is_metadata or is_root_yaml or file.name in NOT_COPIED_FILES)


def functions_text(functions: Sequence[Function]) -> str:
    """The module with a function for each Python action."""
    lines = [
        '"""Python actions of StackStorm. Each function calls the class in a file of `actions/`.',
        "",
        'Made by `manage.py import-st2`."""',
        "",
        "import os",
        "",
        "from muster_client import st2",
        "",
        "HERE = os.path.dirname(os.path.abspath(__file__))",
    ]
    for each in functions:
        defaults = pprint.pformat(each.defaults, width=90, sort_dicts=False)
        lines += [
            "",
            "",
            f"def {each.name}(**given):",
            f"    {_docstring(each.description or each.entry_point)}",
            f"    defaults = {_indented(defaults)}",
            f"    return st2.run(HERE, {each.entry_point!r}, given, defaults)",
        ]
    return "\n".join(lines) + "\n"


def _docstring(text: str) -> str:
    return repr(text) if '"' in text or "\\" in text else f'"""{text}"""'


def _indented(text: str) -> str:
    return text.replace("\n", "\n" + " " * len("    defaults = "))


def report_text(report: Report) -> str:
    """The page that stays with the pack."""
    return "\n".join(
        [
            f"# {report.pack}, imported from StackStorm",
            "",
            *_listed("Left out", report.of(LEFT_OUT)),
            *_listed("Changed", report.of(CHANGED)),
        ]
    )


def _listed(title: str, findings: Iterable[Finding]) -> list[str]:
    lines = [f"- {each}" for each in findings] or ["Nothing."]
    return [f"## {title}", "", *lines, ""]
