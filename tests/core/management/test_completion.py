"""What a shell offers while a command is typed."""

from __future__ import annotations

import subprocess
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
        (["worker", "--pool", ""], "prefork threads"),
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


def test_fish_offers_verbs_with_their_help_and_values_of_options() -> None:
    lines = commands.printed("completion", "fish").splitlines()
    (cordon,) = (line for line in lines if " -a cordon " in line)
    assert "not __fish_seen_subcommand_from list show" in cordon
    assert cordon.endswith("-d 'Give it no more work, except pinned executions.'")
    (status,) = (line for line in lines if "-l status " in line)
    assert "__fish_seen_subcommand_from execution; and __fish_seen_subcommand_from list" in status
    assert "-x -a 'requested scheduling" in status
