"""What a shell offers while a command is typed."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import commands

ASK = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 ))
_muster
echo "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "muster.bash"
    path.write_text(commands.printed("completion", "bash"))
    return path


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["exec"], "execution executor"),
        (["workers", "re"], "retire"),
        (["worker", "--po"], "--pool"),
        (["worker", "--pool", ""], "threads prefork"),
        (["workers", "list", "--"], "--help --all --json"),
        (["execution", "list", "--sta"], "--status"),
        (["execution", "list", "--open", "--status", "ca"], "canceling cancelled"),
        (["execution", "list", "--reason", "worker_l"], "worker_lost"),
        (["execution", "submit", "--parameters", "@file"], ""),
        (["dlq", "list", "--reason", "worker_"], "worker_unavailable"),
        (["unknown", ""], ""),
    ],
)
def test_bash_offers_what_may_come_next(script: Path, typed: list[str], offered: str) -> None:
    asked = ["bash", "-c", ASK, "bash", str(script), "manage.py", *typed]
    done = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.split() == offered.split()
    assert done.stderr == ""


def test_script_is_for_the_name_that_is_typed() -> None:
    assert "-F _muster muster" in commands.printed("completion", "bash", "--program", "muster")
    assert "bashcompinit" in commands.printed("completion", "zsh")


def _shell(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


@pytest.fixture(scope="module")
def fish(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The shell, and a script for it."""
    path = tmp_path_factory.mktemp("completion") / "muster.fish"
    path.write_text(commands.printed("completion", "fish"))
    return _shell("fish"), path


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("exec", ["execution", "executor"]),
        ("workers re", ["retire"]),
        ("worker --pool ", ["prefork", "threads"]),  # in its own order
        ("workers list --", ["--all", "--help", "--json"]),
        ("execution list --open --status ca", ["canceling", "cancelled"]),
        ("execution list --reason worker_l", ["worker_lost"]),
    ],
)
def test_fish_offers_what_may_come_next(
    fish: tuple[str, Path], typed: str, offered: list[str]
) -> None:
    shell, script = fish
    asked = f"source {script}; complete -C 'manage.py {typed}'"
    done = subprocess.run(
        [shell, "--no-config", "-c", asked], capture_output=True, text=True, check=True, timeout=30
    )
    assert [line.partition("\t")[0] for line in done.stdout.splitlines()] == offered


class Terminal:
    """An interactive shell in a terminal of its own."""

    def __init__(self, *argv: str) -> None:
        self.link, theirs = pty.openpty()
        self.process = subprocess.Popen(
            argv,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=os.environ | {"TERM": "dumb", "COLUMNS": "200"},
            start_new_session=True,
        )
        os.close(theirs)
        self.screen = ""

    def type(self, keys: str) -> None:
        self.screen = ""
        os.write(self.link, keys.encode())

    def shows(self, pattern: str, *, within_seconds: float = 20) -> bool:
        """Read until the screen shows this."""
        until = time.monotonic() + within_seconds
        while not re.search(pattern, self.screen):
            if not select.select([self.link], [], [], max(0, until - time.monotonic()))[0]:
                return False
            self.screen += os.read(self.link, 65_536).decode(errors="replace")
        return True

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.link)


@pytest.fixture(scope="module")
def zsh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    path = tmp_path_factory.mktemp("completion") / "muster.zsh"
    path.write_text(commands.printed("completion", "zsh"))
    terminal = Terminal(_shell("zsh"), "-f", "-i")
    terminal.type(f"PS1='ready> '; unsetopt beep; source {path}\n")
    assert terminal.shows("\nready> |\rready> "), terminal.screen
    yield terminal
    terminal.close()


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("exec\t\t", r"execution\s+executor"),
        ("workers re\t", r"workers retire "),
        ("worker --po\t", r"worker --pool "),
        ("execution list --open --status ca\t\t", r"canceling\s+cancelled"),
        ("execution list --reason worker_l\t", r"worker_lost "),
    ],
)
def test_zsh_offers_what_may_come_next(zsh: Terminal, typed: str, shown: str) -> None:
    zsh.type("\x15manage.py " + typed)
    assert zsh.shows(shown), zsh.screen


def test_fish_offers_verbs_with_their_help_and_values_of_options() -> None:
    lines = commands.printed("completion", "fish").splitlines()
    (cordon,) = (line for line in lines if " -a cordon " in line)
    assert "not __fish_seen_subcommand_from list show" in cordon
    assert cordon.endswith("-d 'Give it no more work, except pinned executions.'")
    (status,) = (line for line in lines if "-l status " in line)
    assert "__fish_seen_subcommand_from execution; and __fish_seen_subcommand_from list" in status
    assert "-x -a 'requested scheduling" in status
