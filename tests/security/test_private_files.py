"""Nobody but its owner looks into the data directory, and no file keeps a secret of `up`."""

from __future__ import annotations

import os
import re
import secrets
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.core import private_files
from settings import base
from tests import servers
from tests.scenarios.installation import REPOSITORY
from tests.waiting import wait_until

pytestmark = pytest.mark.xdist_group("private_files")


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """The directory of an older version, made by hand and open to others."""
    var = tmp_path / "var"
    for folder in (var, var / "logs", var / "alive"):
        folder.mkdir()
        folder.chmod(0o755)
    for name in ("secret_key", "muster.db", "logs/api.log", "alive/w1"):
        (var / name).write_text("x" * 60 if name == "secret_key" else "")
        (var / name).chmod(0o644)
    return var


def test_what_an_older_version_left_open_is_closed(older: Path) -> None:
    (older / "notes.txt").write_text("made by somebody else")
    (older / "notes.txt").chmod(0o644)
    (older / "logs" / "link").symlink_to("/etc/hostname")
    before = os.stat("/etc/hostname").st_mode
    private_files.close_to_others(older)
    assert _open_in(older) == {older, older / "notes.txt"}
    assert os.stat("/etc/hostname").st_mode == before


@pytest.mark.slow
def test_up_leaves_no_file_open_and_writes_no_secret_into_a_file(older: Path) -> None:
    log = older.parent / "up.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "up", "--plain", "--port", str(servers.free_port()),
             "--workers", "1"],
            env=_environment(older) | {"FORCE_COLOR": "1"},
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            umask=0o022,
        )  # fmt: skip
    try:
        wait_until(lambda: list((older / "alive").glob("w1")), "the worker is not up", seconds=120)
        wait_until(
            lambda: "workers: w1 active" in _unstyled(log.read_text()), "no line", seconds=120
        )
        time.sleep(1)
        assert _open_in(older) == set()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(120)
    text = _unstyled(log.read_text())
    for name in ("api_token", "admin_password"):
        secret = (older / name).read_text().strip()
        assert len(secret) > 10
        assert secret not in text
        assert str(older / name) in text
    assert _open_in(older) == set()


def test_directory_that_is_shared_with_others_keeps_its_mode(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "of-somebody-else").touch()
    shared.chmod(0o755)
    checked = _check(shared)
    assert stat.S_IMODE(shared.stat().st_mode) == 0o755
    assert "muster.W004" in checked.stderr
    assert stat.S_IMODE((shared / "secret_key").stat().st_mode) == 0o600


def test_empty_directory_is_closed(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    empty.chmod(0o755)
    assert "muster.W004" not in _check(empty).stderr
    assert stat.S_IMODE(empty.stat().st_mode) == 0o700


def _check(directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", "check", "--tag", "configuration"],
        env=_environment(directory),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
        umask=0o022,
    )


def _environment(directory: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(directory.parent),
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "COLUMNS": "1000",
        "MUSTER_DATA_DIR": str(directory),
    }


def _open_in(directory: Path) -> set[Path]:
    """`find DIRECTORY ! -type l -perm /077`."""
    paths = [directory, *directory.rglob("*")]
    return {path for path in paths if not path.is_symlink() and path.lstat().st_mode & 0o077}


def _unstyled(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_secret_key_is_there_whole_or_not_at_all_and_the_first_process_gives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "secret_key"

    def while_it_is_made(_: int) -> str:
        assert not path.exists()  # another process would read what is not written yet
        path.write_text("of another process")
        return "of this process"

    monkeypatch.setattr(base, "DATA_DIR", tmp_path)
    monkeypatch.setattr(secrets, "token_urlsafe", while_it_is_made)
    monkeypatch.delenv("SECRET_KEY", raising=False)
    assert base._secret_key() == "of another process"
    assert [file.name for file in tmp_path.iterdir()] == ["secret_key"]
    path.unlink()
    monkeypatch.setattr(secrets, "token_urlsafe", lambda _: "of this process")
    assert base._secret_key() == "of this process"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
