"""A worker may open as many files as its slots need, if the host allows it."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import resource, sys
soft, hard, slots = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
from workers import open_files
open_files.allow(slots)
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(
    ("soft", "hard", "slots", "expected", "is_warned"),
    [
        (1024, 4096, 22, 1024, False),
        (1024, 4096, 30, 1310, False),
        (1024, 4096, 100, 3900, False),
        (1024, 2000, 100, 2000, True),
    ],
)
def test_limit_is_raised_as_far_as_slots_need_and_the_host_allows(
    soft: int, hard: int, slots: int, expected: int, is_warned: bool
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, *map(str, (soft, hard, slots))],
        capture_output=True,
        text=True,
        check=True,
    )

    *log, limits = done.stdout.splitlines()
    assert limits == f"{expected} {hard}"
    assert bool(log) == is_warned
