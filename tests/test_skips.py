"""A test that cannot run here is skipped on a laptop, and fails where CI is set."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = {
    "conftest.py": """
from tests.conftest import pytest_make_collect_report, pytest_runtest_makereport
""",
    "test_by_mark.py": """
import pytest
@pytest.mark.skipif(True, reason="no first tool")
def test_of_a_tool():
    raise AssertionError
def test_of_no_tool():
    pass
@pytest.mark.xfail(reason="known")
def test_known_to_fail():
    raise AssertionError
""",
    "test_by_fixture.py": """
import pytest
@pytest.fixture(scope="session")
def server():
    pytest.skip("no second tool")
def test_of_a_server(server):
    raise AssertionError
""",
    "test_by_module.py": """
import pytest
pytest.skip("no third tool", allow_module_level=True)
""",
}
TOOLS = {"no first tool", "no second tool", "no third tool"}


def test_what_this_machine_lacks_is_skipped_here(tmp_path: Path) -> None:
    printed = _run(tmp_path, ci="")
    assert "1 passed, 3 skipped, 1 xfailed in" in printed
    assert all(tool in printed for tool in TOOLS)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [0, 1])
def test_what_is_skipped_fails_in_ci_and_says_why(tmp_path: Path, processes: int) -> None:
    options = ("--numprocesses", str(processes), "--continue-on-collection-errors")
    printed = _run(tmp_path, *options, ci="true")
    assert "1 passed, 1 xfailed, 3 errors in" in printed
    assert all(tool in printed for tool in TOOLS)


def _run(directory: Path, *options: str, ci: str) -> str:
    """What pytest prints of these files, under the hooks of our conftest."""
    for name, source in FILES.items():
        (directory / name).write_text(source)
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider"),
            *("-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT)),
            *(*options, str(directory)),
        ],
        env=os.environ | {"CI": ci},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    return run.stdout + run.stderr
