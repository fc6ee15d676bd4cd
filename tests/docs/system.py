"""The embedded system that all pages meet, and the directory in which a newcomer stands."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests import forked, servers
from tests.docs.pages import REPOSITORY
from tests.waiting import wait_until

SETTINGS = {"MUSTER_HEARTBEAT_INTERVAL_SECONDS": "1", "MUSTER_STALENESS_MULTIPLIER": "20"}
"""What pages wait for is quicker than by default."""


@dataclass
class System:
    """`manage.py up` in a data directory of its own, which all pages share."""

    directory: Path
    port: int = field(default_factory=servers.free_port)

    def __post_init__(self) -> None:
        self.environment = {
            "HOME": str(self.directory / "home"),
            "DJANGO_COLORS": "nocolor",
            "LANG": "C.UTF-8",
            "MUSTER_DATA_DIR": str(self.directory / "var"),
            "NO_COLOR": "1",
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(REPOSITORY),
            "TERM": "dumb",
        } | SETTINGS
        (self.directory / "home").mkdir(parents=True)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._guardian = servers.Guardian(self.directory)

    def start(self) -> None:
        self._start("up", "manage.py", "up", "--plain", "--port", str(self.port))
        self._forks = forked.Forks()
        self._make_programs()
        wait_until(self._is_ready, "the system did not start", seconds=120)

    def close(self) -> None:
        self._forks.close()
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
        self._guardian.dismiss()
        shutil.rmtree(self.directory, ignore_errors=True)

    def checkout(self, name: str) -> Path:
        """A directory that has what the pages expect in one: `.venv`, `manage.py`, packs, `var`."""
        directory = self.directory / name
        directory.mkdir()
        for entry in ("deploy", "docs", "muster_client", "packs", "Makefile"):
            (directory / entry).symlink_to(REPOSITORY / entry)
        (directory / ".venv").symlink_to(sys.prefix)
        (directory / "var").symlink_to(self.directory / "var")
        (directory / "manage.py").symlink_to(self._programs / "manage.py")
        return directory

    def shell_environment(self) -> dict[str, str]:
        path = f"{self._programs}{os.pathsep}{self.environment['PATH']}"
        return self.environment | {"PATH": path}

    @property
    def _programs(self) -> Path:
        return self.directory / "programs"

    def _start(self, name: str, *arguments: str) -> None:
        with (self.directory / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [sys.executable, *arguments],
                    cwd=REPOSITORY,
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
        self._guardian.watch([-process.pid for process in self._processes])

    def _make_programs(self) -> None:
        """`manage.py`, quick; `curl`, which fails where the API refuses: then so does its block."""
        program = str(REPOSITORY / "manage.py")
        curl = shutil.which("curl")
        text = {
            "manage.py": forked.client(program=program, address=self._forks.address),
            "curl": f'#!/bin/bash\n{curl} --fail-with-body "$@" 2> >(grep -v "^curl: (22)" >&2)\n',
        }
        self._programs.mkdir()
        for name, content in text.items():
            (self._programs / name).write_text(content)
            (self._programs / name).chmod(0o755)

    def _is_ready(self) -> bool:
        ended = [process.args for process in self._processes if process.poll() is not None]
        assert not ended, (self.directory / "up.log").read_text()
        return self._forks.is_ready() and self._has_api() and self._has_workers()

    def _has_api(self) -> bool:
        try:
            url = f"http://127.0.0.1:{self.port}/api/v1/health/live"
            return httpx.get(url, timeout=5).is_success
        except httpx.HTTPError:
            return False

    def _has_workers(self) -> bool:
        done = subprocess.run(
            [self._programs / "manage.py", "workers", "list"],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.count(" active ") == 2
