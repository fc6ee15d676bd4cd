"""`make audit`: a pinned package with a known hole is found, without a network."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.scenarios.installation import REPOSITORY

TODAY = datetime.now(UTC)
OURS = [REPOSITORY / f"requirements{kind}.txt" for kind in ("", "-otel", "-dev", "-bench")]

PINNED = """\
leaky==2.4.1 \\
    --hash=sha256:00
    # via something
Sound.Package[extra]==1.0 ; python_version < '4' \\
    --hash=sha256:00 \\
    --hash=sha256:01
"""


def entry(**values: Any) -> dict[str, Any]:
    """An entry of OSV for `leaky`, affected from 2.0 to before 2.5."""
    affected: dict[str, Any] = {
        "package": {"ecosystem": "PyPI", "name": "Leaky"},
        "ranges": [
            {"type": "ECOSYSTEM", "events": [{"introduced": "2.0"}, {"fixed": "2.5"}]},
            {"type": "GIT", "events": [{"introduced": "0"}]},
        ],
    }
    return {
        "id": "PYSEC-0000-1",
        "aliases": ["CVE-0000-0001"],
        "summary": "It leaks.\x1b[31m",
        "modified": f"{TODAY - timedelta(days=3):%Y-%m-%dT%H:%M:%SZ}",
        "affected": [affected | values.pop("affected", {})],
        **values,
    }


def audit(
    tmp_path: Path, *entries: dict[str, Any], pinned: str = PINNED
) -> subprocess.CompletedProcess[str]:
    file, database = tmp_path / "requirements.txt", tmp_path / "all.zip"
    file.write_text(pinned)
    with zipfile.ZipFile(database, "w") as archive:
        for number, each in enumerate(entries):
            archive.writestr(f"{number}.json", json.dumps(each))
    return run("--osv", str(database), str(file))


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "deploy/audit.py", *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )


def test_pinned_package_with_a_known_hole_fails(tmp_path: Path) -> None:
    found = audit(tmp_path, entry())
    assert found.returncode == 1
    assert found.stderr == (
        "requirements.txt:1: leaky==2.4.1: PYSEC-0000-1, CVE-0000-0001: It leaks.[31m; "
        "fixed in 2.5\n"
    )
    good_until = TODAY - timedelta(days=3) + timedelta(days=30)
    assert found.stdout == (f"2 pins, 1 problems; 1 entries, too old after {good_until:%Y-%m-%d}\n")


@pytest.mark.parametrize(
    ("versions", "is_hit"),
    [
        ({"ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}]}]}, True),
        ({"ranges": [], "versions": ["2.4.0", "2.4.1"]}, True),
        ({"ranges": [], "versions": ["2.4.0", "not a version"]}, False),
        (
            {
                "ranges": [
                    {
                        "type": "ECOSYSTEM",
                        "events": [{"introduced": "2.0"}, {"last_affected": "2.4.1"}],
                    }
                ]
            },
            True,
        ),
        (
            {
                "ranges": [
                    {
                        "type": "ECOSYSTEM",
                        "events": [{"introduced": "2.0"}, {"last_affected": "2.4"}],
                    }
                ]
            },
            False,
        ),
        (
            {
                "ranges": [
                    {
                        "type": "ECOSYSTEM",
                        "events": [
                            {"introduced": "2.4.1"},
                            {"introduced": "0"},
                            {"fixed": "2.2"},
                            {"fixed": "2.10"},
                        ],
                    }
                ]
            },
            True,
        ),
        ({"package": {"ecosystem": "npm", "name": "leaky"}}, False),
        ({"package": {"ecosystem": "PyPI", "name": "leaky-too"}}, False),
    ],
)
def test_versions_are_compared_as_the_database_means_them(
    tmp_path: Path, versions: dict[str, Any], is_hit: bool
) -> None:
    assert audit(tmp_path, entry(affected=versions)).returncode == (1 if is_hit else 0)


def test_withdrawn_entry_counts_for_nothing(tmp_path: Path) -> None:
    assert audit(tmp_path, entry(withdrawn="2020-01-01T00:00:00Z")).returncode == 0


def test_old_database_is_refused_with_the_day_until_which_it_was_good(tmp_path: Path) -> None:
    refused = audit(tmp_path, entry(modified="2020-01-01T00:00:00Z"))
    assert refused.returncode == 1
    assert "its newest entry is of 2020-01-01, so it was good until 2020-01-31" in refused.stderr


def test_empty_or_broken_database_is_refused(tmp_path: Path) -> None:
    assert "has no entry" in audit(tmp_path).stderr
    (tmp_path / "all.zip").write_text("no zip")
    refused = run("--osv", str(tmp_path / "all.zip"), str(tmp_path / "requirements.txt"))
    assert refused.returncode == 1
    assert "cannot be read" in refused.stderr


def test_without_a_database_it_says_how_to_get_one(tmp_path: Path) -> None:
    refused = run(*map(str, OURS))
    assert refused.returncode == 1
    assert "make audit OSV=all.zip" in refused.stderr


def test_pin_without_a_hash_fails(tmp_path: Path) -> None:
    refused = audit(tmp_path, entry(withdrawn="2020-01-01"), pinned="leaky==3.0\n")
    assert refused.returncode == 1
    assert "requirements.txt:1: leaky==3.0 has no hash; run: make lock" in refused.stderr


def test_other_version_than_the_pinned_one_fails(tmp_path: Path) -> None:
    pinned = "django==1.0 \\\n    --hash=sha256:00\n"
    refused = audit(tmp_path, entry(withdrawn="2020-01-01"), pinned=pinned)
    assert "django==1.0 is pinned, " in refused.stderr


def test_all_our_pins_have_hashes_and_are_what_is_installed(tmp_path: Path) -> None:
    (tmp_path / "0.json").write_text(json.dumps(entry()))
    clean = run("--osv", str(tmp_path), *map(str, OURS))
    assert clean.stderr == ""
    assert clean.returncode == 0
    assert int(clean.stdout.split()[0]) > 100


@pytest.mark.parametrize("file", OURS, ids=lambda path: path.name)
def test_pins_come_from_no_other_index(file: Path) -> None:
    lines = file.read_text().splitlines()
    assert not [line for line in lines if line.startswith("--") or "://" in line]


@pytest.mark.parametrize("kind", ["", "-dev", "-bench"])
def test_what_is_asked_for_is_what_is_pinned(kind: str) -> None:
    """`make lock` was run after the last change."""
    asked = _pins(REPOSITORY / f"requirements{kind}.in")
    assert asked
    assert asked <= _pins(REPOSITORY / f"requirements{kind}.txt")


def _pins(path: Path) -> set[str]:
    """As `psycopg==3.3.9`."""
    lines = (line.split("#")[0].strip(" \\") for line in path.read_text().splitlines())
    asked = [Requirement(line) for line in lines if "==" in line]
    return {f"{each.name.lower()}{each.specifier}" for each in asked}
