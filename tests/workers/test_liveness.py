"""Signs of life: a file, and systemd's socket."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from workers import liveness


def test_file_is_written_anew_and_removed(settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path
    sign = liveness.Sign("a/b")
    assert sign.path.parent == tmp_path / "alive"

    sign.renew(incarnation=1)
    sign.renew(incarnation=2)

    assert (
        json.loads(sign.path.read_text()).items() >= {"pid": os.getpid(), "incarnation": 2}.items()
    )
    assert os.listdir(sign.path.parent) == [sign.path.name], "no draft is left"
    sign.remove()
    sign.remove()
    assert not sign.path.exists()


def test_directory_that_cannot_be_written_stops_nobody(settings: Any, tmp_path: Path) -> None:
    (tmp_path / "alive").write_text("in the way")
    settings.DATA_DIR = tmp_path
    liveness.Sign("w1").renew()


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_told(
    monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path, abstract: bool
) -> None:
    settings.DATA_DIR = tmp_path
    address = f"@muster-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind("\0" + address[1:] if abstract else address)
        systemd.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        sign = liveness.Sign("w1")
        sign.renew()
        sign.renew()
        assert [systemd.recv(100), systemd.recv(100)] == [b"READY=1\nWATCHDOG=1", b"WATCHDOG=1"]


def test_systemd_that_went_away_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/nonexistent/notify")
    liveness.notify("WATCHDOG=1")
