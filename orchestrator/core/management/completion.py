"""Scripts that complete our commands in a shell, made from their parsers."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from orchestrator.core.management.pages.commands import own_commands, verbs_of


class Place(NamedTuple):
    """A place in a command line: after a command, or after its verb."""

    path: str
    """`workers`, or `workers list`."""
    help: str
    verbs: dict[str, str]
    """The words that go on from here, with their help."""
    options: dict[str, list[str]]
    """The options, with the values of those that have few."""


def places() -> Iterator[Place]:
    """Every place at which one of our commands goes on."""
    for name, command in own_commands():
        parser = command.create_parser("manage.py", name)
        verbs = list(verbs_of(parser))
        texts = {verb: text for verb, _, text in verbs}
        yield Place(name, command.help, texts, _options(parser))
        for verb, sub, text in verbs:
            yield Place(f"{name} {verb}", text, {}, _options(sub))


def _options(parser: argparse.ArgumentParser) -> dict[str, list[str]]:
    return {
        action.option_strings[-1]: [str(choice) for choice in action.choices or ()]
        for action in parser._actions
        if action.option_strings and action.help != argparse.SUPPRESS
    }


# --- bash, and zsh in its manner -----------------------------------------------------------------


def bash(program: str) -> str:
    """A script for bash: `source <(manage.py completion bash)`."""
    found = list(places())
    commands = " ".join(place.path for place in found if " " not in place.path)
    return "\n".join(
        [
            "_muster() {",
            '    local here="" words=""',
            '    (( COMP_CWORD > 1 )) && here="${COMP_WORDS[1]}"',
            '    (( COMP_CWORD > 2 )) && here="$here ${COMP_WORDS[2]}"',
            '    case "$here|${COMP_WORDS[COMP_CWORD-1]}" in',
            *(f"        {line}" for place in found for line in _values(place)),
            '        *) case "$here" in',
            f'            "") words="{commands}" ;;',
            # the longest place first: `workers list` before `workers`
            *(f"            {_goes_on(place)}" for place in reversed(found)),
            "        esac ;;",
            "    esac",
            '    COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))',
            "}",
            f"complete -o default -F _muster {shlex.quote(program)}",
            "",
        ]
    )


def zsh(program: str) -> str:
    """The same for zsh: `source <(manage.py completion zsh)`."""
    loaded = [f"autoload -U +X {each} && {each}" for each in ("compinit", "bashcompinit")]
    return "\n".join([*loaded, bash(program)])


def _values(place: Place) -> Iterator[str]:
    for option, values in place.options.items():
        if values:
            yield f'"{place.path}"*"|{option}") words="{" ".join(values)}" ;;'


def _goes_on(place: Place) -> str:
    words = " ".join([*place.verbs, *place.options])
    return f'"{place.path}"|"{place.path} "*) words="{words}" ;;'


# --- fish ----------------------------------------------------------------------------------------


def fish(program: str) -> str:
    """A script for fish: `manage.py completion fish | source`."""
    complete = f"complete -c {shlex.quote(program)}"
    lines = []
    for place in places():
        if " " not in place.path:
            lines.append(_offer(f"{complete} -f -n __fish_use_subcommand", place.path, place.help))
        seen = [f"__fish_seen_subcommand_from {word}" for word in place.path.split()]
        where = f"{complete} -n {shlex.quote('; and '.join(seen))}"
        for verb, text in place.verbs.items():
            none_yet = f"not __fish_seen_subcommand_from {' '.join(place.verbs)}"
            before = shlex.quote("; and ".join([*seen, none_yet]))
            lines.append(_offer(f"{complete} -f -n {before}", verb, text))
        for option, values in place.options.items():
            offered = f" -x -a {shlex.quote(' '.join(values))}" if values else ""
            lines.append(f"{where} -l {option.lstrip('-')}{offered}")
    return "\n".join(lines) + "\n"


def _offer(where: str, word: str, text: str) -> str:
    return f"{where} -a {word} -d {shlex.quote(' '.join(text.split()))}"


SHELLS = {"bash": bash, "zsh": zsh, "fish": fish}
