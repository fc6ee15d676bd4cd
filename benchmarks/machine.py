"""The machine that the figures were measured on."""

from __future__ import annotations

import contextlib
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

import psutil

from benchmarks.remote import REPOSITORY
from tests import servers

PACKAGES = (
    "celery",
    "kombu",
    "django",
    "psycopg",
    "django-celery-results",
    "procrastinate",
    "dbos",
)


def describe() -> dict[str, str]:
    """Machine, load and versions, each as a reader wants to see it."""
    one, five, fifteen = os.getloadavg()
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "load average before": f"{one:.2f} {five:.2f} {fifteen:.2f}",
        "fsync": f"{_fsync_ms():.2f} ms (median of 100 writes of 8 KiB)",
        "system": platform.platform(),
        "python": platform.python_version(),
        "postgresql": _version("postgres", servers.POSTGRES_DIRECTORIES, "--version"),
        "rabbitmq": _rabbitmq(),
        **{name: _package(name) for name in PACKAGES},
        "muster": _commit(),
    }


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _fsync_ms() -> float:
    """The milliseconds that the disk takes to keep something: what every durable commit waits
    for."""
    times = []
    with tempfile.NamedTemporaryFile() as file:
        for _ in range(100):
            file.write(b"\0" * 8192)
            file.flush()
            started = time.perf_counter()
            os.fsync(file.fileno())
            times.append((time.perf_counter() - started) * 1000)
    return statistics.median(times)


def _version(name: str, directories: tuple[str, ...], *arguments: str) -> str:
    try:
        return _output([str(servers.find(name, directories)), *arguments])
    except servers.MissingBinary:
        return "not installed"


def _rabbitmq() -> str:
    try:
        scripts = servers.find("rabbitmq-server", servers.RABBIT_DIRECTORIES).parent
    except servers.MissingBinary:
        return "not installed"
    # Debian keeps scripts and plugins in different places
    for folder in (scripts.parent, *Path("/usr/lib/rabbitmq/lib").glob("*")):
        for path in folder.glob("plugins/rabbit-[0-9]*"):
            return path.name.removeprefix("rabbit-").removesuffix(".ez")
    return "unknown"


def _package(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    return _output(["git", "-C", str(REPOSITORY), "describe", "--always", "--dirty"]) or "unknown"


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except OSError as error:
        print(error, file=sys.stderr)
        return "unknown"
    return done.stdout.strip()
