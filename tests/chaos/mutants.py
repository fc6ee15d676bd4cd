"""`make mutants`: is each line that the promise rests on held by a test?

One line after another is broken in a copy of the last commit, and the tests that should notice
run, the quick ones first. A mutant that survives is a test that is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests import servers
from tests.chaos import automation_mutations, mutations
from tests.chaos.mutations import Mutant
from tests.scenarios.installation import REPOSITORY

ALL = (*mutations.MUTANTS, *automation_mutations.MUTANTS)

STAGE_SECONDS = 420.0
FAILED = re.compile(r"^(?:FAILED|ERROR) \S*?(tests/[^\s\[]+)", re.MULTILINE)
TESTS_FAILED = 1


@dataclass(frozen=True)
class Verdict:
    """Which test noticed a mutant, or none."""

    mutant: Mutant
    noticed_by: str
    seconds: float


def main() -> int:
    options = _options()
    chosen = [mutant for mutant in ALL if options.k in f"{mutant.file}: {mutant.name}"]
    verdicts = []
    with _copy_of_the_last_commit() as copy, servers.PostgresServer() as postgres:
        # one for all, instead of a start for each
        os.environ["TEST_DATABASE_URL"] = postgres.url
        if not options.trust:
            _require_green(copy, chosen)
        for number, mutant in enumerate(chosen, 1):
            verdict = judge(mutant, copy)
            verdicts.append(verdict)
            _tell(
                f"{number}/{len(chosen)} {verdict.seconds:5.0f} s  {mutant.name}: "
                f"{verdict.noticed_by or 'SURVIVED'}"
            )
    survivors = [verdict for verdict in verdicts if not verdict.noticed_by]
    _tell(f"{len(verdicts)} mutants, {len(survivors)} survived")
    return int(bool(survivors))


def judge(mutant: Mutant, copy: Path) -> Verdict:
    """Break the line, run the tests stage by stage until one fails, and mend the line."""
    path = copy / mutant.file
    sound = path.read_text()
    began = time.monotonic()
    noticed_by = ""
    path.write_text(broken(mutant, sound))
    try:
        for stage in mutant.stages:
            if noticed_by := _failing_test(copy, stage):
                break
    finally:
        path.write_text(sound)
    return Verdict(mutant, noticed_by, time.monotonic() - began)


def broken(mutant: Mutant, sound: str) -> str:
    """The text with its line broken. Raises ValueError where the line is not there exactly once."""
    if (found := sound.count(mutant.old)) != 1:
        raise ValueError(f"{mutant.name}: {mutant.file} has its line {found} times")
    return sound.replace(mutant.old, mutant.new)


def _failing_test(copy: Path, tests: Sequence[str]) -> str:
    """The first test that fails; empty if all pass. Raises RuntimeError if they cannot be run."""
    failing = _first_failing(copy, tests)
    if not failing.startswith("scenarios/"):
        return failing
    # again, alone: what fails only because the machine is busy has noticed nothing
    return _first_failing(copy, [f"tests/{failing}"])


def _first_failing(copy: Path, tests: Sequence[str]) -> str:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        ran = subprocess.run(
            command, cwd=copy, capture_output=True, text=True, timeout=STAGE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return tests[0].removeprefix("tests/")
    if ran.returncode == 0:
        return ""
    found = FAILED.search(ran.stdout)
    if ran.returncode != TESTS_FAILED or found is None:
        raise RuntimeError(f"{command} ended with {ran.returncode}:\n{ran.stdout[-3000:]}")
    return found[1].removeprefix("tests/")


def _require_green(copy: Path, mutants: Sequence[Mutant]) -> None:
    """What fails without any mutant notices nothing."""
    stages = sorted({test for mutant in mutants for stage in mutant.stages for test in stage})
    _tell("first, everything without a mutant")
    if failing := _failing_test(copy, stages):
        raise SystemExit(f"{failing} fails although nothing is broken")


@contextlib.contextmanager
def _copy_of_the_last_commit() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="muster-mutants-"))
    git = ("git", "-C", str(REPOSITORY), "worktree")
    copy = directory / "tree"
    subprocess.run([*git, "add", "--quiet", "--detach", str(copy), "HEAD"], check=True)
    try:
        yield copy
    finally:
        subprocess.run([*git, "remove", "--force", str(copy)], check=False)
        shutil.rmtree(directory, ignore_errors=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("-k", default="", help="only those with this in their name or file")
    parser.add_argument(
        "--trust", action="store_true", help="do not run the tests without a mutant first"
    )
    return parser.parse_args()


def _tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
