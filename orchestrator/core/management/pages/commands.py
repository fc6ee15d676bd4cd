"""The page of commands, and the parsers that it is read from."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from django.conf import settings
from django.core.management import get_commands, load_command_class
from django.core.management.base import BaseCommand

from orchestrator.core import frame
from orchestrator.core.management.markdown import page_of, table_of


def page() -> str:
    parts = [
        "Run each as `manage.py COMMAND`. A command that fails writes the reason in one line to "
        "stderr and exits with status 1; wrong arguments exit with status 2. `manage.py help` also "
        "lists Django's own commands, such as `migrate` and `check`.",
    ]
    for name, command in own_commands():
        parser = command.create_parser("manage.py", name)
        parts += [f"## `{name}`", _sentence(command.help), *_arguments(parser)]
        for verb, sub, text in verbs_of(parser):
            parts += [f"### `{name} {verb}`", _sentence(text), *_arguments(sub)]
    return page_of("Commands", *parts)


def own_commands() -> Iterator[tuple[str, BaseCommand]]:
    """Our commands, by name."""
    names = {app.name for app in frame.ours()}
    for name, app in sorted(get_commands().items()):
        if app in names:
            yield name, load_command_class(app, name)


def verbs_of(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser, str]]:
    """The verbs of a command, with the parser and the help of each."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            texts = {each.dest: each.help or "" for each in action._choices_actions}
            for verb, sub in action.choices.items():
                yield verb, sub, texts.get(verb, "")


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    ours = [action for action in parser._actions if not _is_everywhere(action)]
    if ours:
        rows = [(f"`{_spelled(action)}`", _help_text(parser, action)) for action in ours]
        yield table_of(("Argument", "Meaning"), rows)


def _is_everywhere(action: argparse.Action) -> bool:
    """Return True for help, hidden options such as Django's, and the verbs, which have own
    sections."""
    is_hidden = action.help == argparse.SUPPRESS or action.dest == "help"
    return is_hidden or isinstance(action, argparse._SubParsersAction)


def _spelled(action: argparse.Action) -> str:
    if not action.option_strings:
        name = str(action.metavar or action.dest)
        return f"[{name}]" if action.nargs == "?" else name
    option = action.option_strings[-1]
    if action.nargs == 0:
        return option
    if action.metavar is None and action.choices:
        return f"{option} {'|'.join(map(str, action.choices))}"
    value = str(action.metavar or action.dest.upper())
    return f"{option} [{value}]" if action.nargs == "?" else f"{option} {value}"


def _help_text(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    formatter = parser._get_formatter()
    text = _sentence(formatter._expand_help(action) if action.help else "")
    is_dull = action.default in (None, False, argparse.SUPPRESS) or action.default in ([], {})
    if action.option_strings and not is_dull and not _is_of_this_host(action):
        text += f" Default: `{action.default}`."
    return text.strip()


def _is_of_this_host(action: argparse.Action) -> bool:
    """Return True for defaults that differ between machines: a number of cores, or a folder."""
    return action.dest == "concurrency" or str(settings.BASE_DIR) in str(action.default)


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    if not text:
        return ""
    return text[0].upper() + text[1:] + ("" if text[-1] in ".?!" else ".")
