"""The demo is the promise in small: it runs in every test, and checks itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run_demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", "demo", *arguments],
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "settings.base"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


@pytest.mark.slow
def test_demo_loses_two_workers_and_no_execution(tmp_path):
    directory = tmp_path / "demo"
    done = run_demo("--files", "150", "--data-dir", str(directory), "--svg", str(tmp_path / "svg"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "accepted 160 = ended, with a reason, 160" in done.stdout
    assert "equal to hashlib's: 150 of 150" in done.stdout
    assert "FAILS" not in done.stdout
    letters = re.search(r"dead letters drained: (\d+)", done.stdout)
    assert letters is not None
    assert int(letters[1]) >= 8
    assert "</svg>" in (tmp_path / "svg").read_text()
    assert not list(directory.glob("broker.db*"))  # its queues would not fit other settings


def test_demo_wipes_no_directory_that_it_did_not_make(tmp_path):
    (tmp_path / "thesis.txt").write_text("three years")
    done = run_demo("--data-dir", str(tmp_path))
    assert done.returncode == 1
    assert "will not be wiped" in done.stderr
    assert (tmp_path / "thesis.txt").read_text() == "three years"
