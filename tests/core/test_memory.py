"""Muster's own processes show nobody their memory, nor a credential in their environment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings

from orchestrator.core import memory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")

READY = "import os, sys; {setup}; print('ready', flush=True); sys.stdin.read()"
DJANGO = "import django; django.setup()"
CANARY = "canary-of-the-environment"
GET_DUMPABLE = "import ctypes; print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "DJANGO_SETTINGS_MODULE": "settings.base",
        "MUSTER_DATA_DIR": str(tmp_path),
        "MUSTER_NAMESPACE": CANARY,
        "SECRET_KEY": CANARY,
        "UNRELATED": "stays",
    }


def process(setup: str, environment: dict[str, str]) -> Iterator[tuple[int, bytes]]:
    code = READY.format(setup=setup)
    argv = [sys.executable, "-c", code]
    with subprocess.Popen(
        argv, env=environment, cwd=settings.BASE_DIR, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as started:
        assert started.stdin is not None
        assert started.stdout is not None
        said = started.stdout.readline()
        yield started.pid, said
        started.stdin.close()


@pytest.mark.parametrize(("setup", "is_shown"), [("pass", True), (DJANGO, False)])
def test_credentials_leave_the_environment_that_the_kernel_shows(
    environment: dict[str, str], setup: str, is_shown: bool
) -> None:
    for pid, _ in process(setup, environment):
        shown = Path(f"/proc/{pid}/environ").read_bytes() if os.geteuid() == 0 else b""
        assert (CANARY.encode() in shown) == (is_shown and os.geteuid() == 0)
        assert b"UNRELATED=stays" in shown or os.geteuid() != 0


def test_process_itself_keeps_them(environment: dict[str, str]) -> None:
    setup = f"{DJANGO}; print(os.environ['SECRET_KEY'], os.popen('echo $SECRET_KEY').read())"
    for _, said in process(setup, environment):
        assert said.decode().split() == [CANARY, CANARY]


def test_process_that_has_read_the_settings_lets_nobody_trace_it(
    environment: dict[str, str],
) -> None:
    for _, said in process(f"{DJANGO}; {GET_DUMPABLE}", environment):
        assert said == b"0\n"
    for _, said in process(GET_DUMPABLE, environment):
        assert said == b"1\n"


def test_worker_has_none_in_its_environment_and_another_secret_key(
    environment: dict[str, str],
) -> None:
    setup = (
        f"{DJANGO}; from workers import credentials; credentials.forget(); "
        "from django.conf import settings; "
        f"print({CANARY!r} in str(os.environ), 'UNRELATED' in os.environ, "
        f"settings.SECRET_KEY == {CANARY!r}, len(settings.SECRET_KEY) > 40, "
        "settings.MUSTER.namespace)"
    )
    for _, said in process(setup, environment):
        assert said.decode().split() == ["False", "True", "False", "True", CANARY]


def test_credentials_are_known_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_ANYTHING", "1")
    monkeypatch.setenv("DATABASE_URL", "1")
    assert {"MUSTER_ANYTHING", "DATABASE_URL"} <= set(memory.credentials())
    assert "PATH" not in memory.credentials()
