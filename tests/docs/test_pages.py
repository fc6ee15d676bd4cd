"""What every page holds to, whether its commands can run here or not."""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import yaml
from django.conf import settings
from django.core.management import get_commands, load_command_class
from django.core.management.base import BaseCommand

from orchestrator.core.api import api, plain_api
from tests.docs import pages
from tests.docs.pages import FAILS, FAILURES, NOT_RUN, OUTPUT, REPOSITORY, SHELL, Page

PAGES = {page.name: page for page in pages.hand_written()}
BESIDE = {name: pages.page(name) for name in ("CONTRIBUTING.md", "deploy/README.md")}
"""Pages of which no command can run beside the tests."""
EVERY = PAGES | BESIDE

PARSERS: dict[str, Callable[[str], Any]] = {
    "json": json.loads,
    "python": lambda text: compile(text, "a page", "exec"),
    "toml": tomllib.loads,
    "yaml": yaml.safe_load,
}
SHOWN = {"env", "ini", "js", "mermaid", "nginx", "text"}
"""Languages that nothing here reads."""

COMMAND = re.compile(r"^\s*(\./\S|manage\.py|make|curl|docker|sudo|export|apt-get)\b", re.MULTILINE)

OF_THE_REPOSITORY = re.compile(
    r"(?<![\w./-])(?:tests|deploy|docs|orchestrator|workers|tasks|packs|benchmarks|settings)"
    r"/[\w./-]*[\w/]"
)

REQUEST = re.compile(r"(GET|POST|PUT|PATCH|DELETE) (/[^\s?]*)")
OUTSIDE = ("/metrics", "/health/live", "/health/ready", "/api/v1/stream")
"""Routes that are not of the API."""

MADE = {"deploy/.env", "deploy/muster.env"}
"""Files that are made where they are needed."""


@pytest.mark.parametrize("page", EVERY.values(), ids=EVERY)
def test_every_command_either_runs_or_says_why_not(page: Page) -> None:
    """So a block that is added later runs, unless somebody gives a reason."""
    for block in page.blocks:
        at = f"{page.name}:{block.line}"
        assert block.language in {SHELL, OUTPUT, *PARSERS, *SHOWN}, f"{at}: {block.language!r}"
        assert block.language != "text" or not COMMAND.search(block.text), (
            f"{at}: those are commands"
        )
        if block.language == SHELL and block.words not in ("", FAILS):
            assert block.words.startswith(NOT_RUN), f"{at}: expected {NOT_RUN!r} and a reason"
            assert len(block.words.split()) > 4, f"{at}: that is no reason"
    text = [token.content for token in page.tokens if token.type == "inline"]
    assert not any("```" in part for part in text), "a fence that is none: a ` in its first line?"


def test_table_of_the_apps_names_each_of_them() -> None:
    text = (REPOSITORY / "CONTRIBUTING.md").read_text()
    named = re.findall(r"^\| `(orchestrator/\w+)` \|", text, re.MULTILINE)
    packages = (REPOSITORY / "orchestrator").glob("*/__init__.py")
    assert sorted(named) == sorted(f"orchestrator/{each.parent.name}" for each in packages)


@pytest.mark.parametrize("page", BESIDE.values(), ids=BESIDE)
def test_nothing_runs_of_a_page_that_is_not_walked(page: Page) -> None:
    assert not any(block.is_run for block in page.blocks)


@pytest.mark.parametrize("page", EVERY.values(), ids=EVERY)
def test_what_is_shown_as_output_follows_a_command_that_runs(page: Page) -> None:
    for before, block in itertools.pairwise([None, *page.blocks]):
        assert block is not None
        if block.language == OUTPUT:
            assert before is not None and before.is_run, f"{page.name}:{block.line}"  # noqa: PT018


@pytest.mark.parametrize("page", EVERY.values(), ids=EVERY)
def test_code_and_data_can_be_read(page: Page) -> None:
    for block in page.blocks:
        if parse := PARSERS.get(block.language):
            assert parse(block.text) != "", f"{page.name}:{block.line}"


@pytest.mark.parametrize("name", [name for name in PAGES if name.startswith("docs/")])
def test_page_begins_with_what_it_is_for_and_ends_with_what_to_do_when_it_fails(name: str) -> None:
    page = PAGES[name]
    kinds = [token.type for token in page.tokens[:4]]
    assert kinds == ["heading_open", "inline", "heading_close", "paragraph_open"]
    assert page.tokens[4].content.startswith("This page is for "), page.tokens[4].content
    assert page.headings(2)[-1] == FAILURES
    head, *rows = _last_table(page)
    assert head == ["symptom", "what shows the cause", "what ends it"]
    assert len(rows) >= 5
    assert all(len(row) == 3 and all(row) for row in rows)
    shown = [row for row in rows if "`" in row[1]]
    assert len(shown) > len(rows) / 2, "a cause is shown by a command, more often than not"


def _last_table(page: Page) -> list[list[str]]:
    rows: list[list[str]] = []
    for before, token in itertools.pairwise(page.tokens):
        if before.type == "table_open":
            rows = []
        elif before.type == "tr_open":
            rows.append([])
        elif before.type in ("th_open", "td_open"):
            rows[-1].append(token.content)
    return rows


# --- what pages name ------------------------------------------------------------------------------


@pytest.mark.parametrize("page", EVERY.values(), ids=EVERY)
def test_every_command_that_is_named_exists_with_its_options(page: Page) -> None:
    wrong = [f"{page.name}:{line}: {trouble}" for line, trouble in _wrong_commands(page)]
    assert not wrong, "\n".join(wrong)


def _wrong_commands(page: Page) -> Iterator[tuple[int, str]]:
    for line, text in _commands(page):
        if trouble := wrong_in(text):
            yield line, f"manage.py {text}: {trouble}"


def _commands(page: Page) -> Iterator[tuple[int, str]]:
    """Line and arguments of each `manage.py`, in the text and in blocks."""
    for line, text in page.inline_code():
        if command := pages.command_in(text):
            yield line, command
    for block in page.blocks:
        if block.language == SHELL:
            for number, text in enumerate(block.text.replace("\\\n", " \n").splitlines(), 1):
                for _, found in re.findall(r"(^|[( ])(?:\./)?(manage\.py \w.*)", text):
                    yield block.line + number, pages.command_in(found)


def wrong_in(command: str) -> str:
    """What is unknown in the arguments of `manage.py`; empty if all is known."""
    try:
        name, *words = shlex.split(command)
    except ValueError:  # it goes on in the next line
        name, *words = command.split()
    if name == "help":
        return ""
    app = get_commands().get(name)
    if app is None:
        return f"no command is called {name!r}"
    loaded = app if isinstance(app, BaseCommand) else load_command_class(app, name)
    parser: argparse.ArgumentParser = loaded.create_parser("manage.py", name)
    for word in words:
        verbs = _verbs(parser)
        if word.startswith("--"):
            if word.partition("=")[0] not in parser._option_string_actions:
                return f"no option {word}"
        elif verbs and word in verbs:
            parser = verbs[word]
        elif verbs and word.islower():
            return f"no verb {word!r}"
    return ""


def _verbs(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


@pytest.mark.parametrize(
    ("command", "trouble"),
    [
        ("dlq update ID --nota x", "no option --nota"),
        ("execution run core.echo", "no verb 'run'"),
        ("jobs list", "no command is called 'jobs'"),
        ("dlq update ID --resolution-notes x --json", ""),
        ("migrate", ""),
    ],
)
def test_unknown_commands_verbs_and_options_are_found(command: str, trouble: str) -> None:
    assert wrong_in(command) == trouble


@pytest.mark.parametrize("page", EVERY.values(), ids=EVERY)
def test_every_request_that_is_named_has_a_route(page: Page) -> None:
    """In blocks they run; this is about sentences and tables."""
    named = {found.groups() for _, text in page.inline_code() if (found := REQUEST.match(text))}
    missing = {f"{method} {path}" for method, path in named if not _is_route(method, path)}
    assert not missing


def _is_route(method: str, path: str) -> bool:
    return "..." in path or any(re.fullmatch(route, path) for route in _routes(method.lower()))


@functools.cache
def _routes(method: str) -> list[str]:
    """Patterns of the paths that know the method, with and without their prefix."""
    faces = {"/api/v1/": api, "/v1/": plain_api}
    found = [
        path
        for prefix, face in faces.items()
        for path, operations in face.get_openapi_schema(path_prefix=prefix)["paths"].items()
        if method in operations
    ]
    short = [re.sub("^/(api/)?v1", "", path) for path in found]
    return [re.sub(r"{\w+}", "[^/]+", path) for path in [*found, *short, *OUTSIDE]]


@pytest.mark.parametrize("page", EVERY.values(), ids=EVERY)
def test_every_setting_that_is_named_exists(page: Page) -> None:
    known = {f"MUSTER_{field.name.upper()}" for field in fields(settings.MUSTER)}
    text = [text for _, text in page.inline_code()]
    text += [block.text for block in page.blocks if block.language in ("env", SHELL)]
    named = {found for part in text for found in re.findall(r"\bMUSTER_[A-Z_]+[A-Z]\b(?!_)", part)}
    assert named <= known, sorted(named - known)


@pytest.mark.parametrize("page", EVERY.values(), ids=EVERY)
def test_every_file_that_is_named_exists(page: Page) -> None:
    text = [text for _, text in page.inline_code()]
    text += [block.words for block in page.blocks if block.words.startswith(NOT_RUN)]
    named = {found for part in text for found in OF_THE_REPOSITORY.findall(part)}
    missing = {name for name in named - MADE if not _exists(page, name)}
    assert not missing


def _exists(page: Page, name: str) -> bool:
    """In the repository, or in an app or beside the page, where the text is about that."""
    roots = (REPOSITORY, REPOSITORY / "tests", (REPOSITORY / page.name).parent)
    return any((root / name).exists() for root in roots)


@pytest.mark.parametrize("page", EVERY.values(), ids=EVERY)
def test_every_link_leads_somewhere(page: Page) -> None:
    broken = [link for link in _links(page) if not _leads_somewhere(page, link)]
    assert not broken


def _links(page: Page) -> Iterator[str]:
    for token in page.tokens:
        for child in token.children or ():
            for name in ("href", "src"):
                link = str(child.attrGet(name) or "")
                if link and "://" not in link:
                    yield unquote(link)


def _leads_somewhere(page: Page, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (REPOSITORY / page.name).parent / path if path else REPOSITORY / page.name
    if not target.exists():
        return False
    return not anchor or anchor in _anchors(target)


def _anchors(path: Path) -> set[str]:
    """Of the headings, as GitHub makes them."""
    page = pages.parsed(str(path), path.read_text(encoding="utf-8"))
    headings = [title for level in range(1, 7) for title in page.headings(level)]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings}


def test_every_make_target_that_is_named_exists() -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = {
        found
        for page in EVERY.values()
        for block in page.blocks
        if block.language == SHELL
        for found in re.findall(r"^make ([a-z-]+)", block.text, re.MULTILINE)
    }
    assert named <= targets
    assert {"demo", "up", "bench", "chaos"} <= named
