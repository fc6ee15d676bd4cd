"""A sensor service: timers in the main thread, a supervisor of sensors and polls, and a sentinel.

Any number of them may run; none is a leader.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from types import FrameType

import structlog
from django.conf import settings
from django.db import connections

from orchestrator.automation.sensors import services
from orchestrator.core import database, publisher, relay
from workers import processes
from workers.runtimes import work_dirs
from workers.sensors import sentinel, ticking
from workers.sensors.supervisor import Supervisor
from workers.sentinel import AS_JSON, GOODBYE, RENEWED

log = structlog.get_logger(__name__)

BEAT_SECONDS = 1.0


def run(name: str, labels: Mapping[str, str]) -> None:
    """Run a sensor service until a signal comes."""
    stopping = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    os.environ[processes.WORKER_TOKEN] = secrets.token_hex(16)
    watcher = _start_sentinel()
    publisher.connect_soon()
    database.wait_until_reachable()
    work_dirs.remove_left()
    supervisor = Supervisor(name, labels)
    supervisor.start()
    try:
        log.info("sensor ready.", name=name, labels=dict(labels))
        ticking.fire_until(stopping)
    finally:
        supervisor.stop()  # or its thread would keep this process
    _dismiss(watcher)
    relay.flush()
    connections.close_all()


def _start_sentinel() -> subprocess.Popen[bytes]:
    """Start the sentinel, and a thread that shows it that this process is not frozen."""
    command = [sys.executable, "-m", sentinel.__name__]
    limit = f"{services.lease_seconds():g}"
    as_json = [AS_JSON] if settings.LOG_AS_JSON else []
    watcher = subprocess.Popen(
        [*command, str(os.getpid()), limit, os.environ[processes.WORKER_TOKEN], *as_json],
        stdin=subprocess.PIPE,
        start_new_session=True,
        bufsize=0,
    )

    def beat() -> None:
        pause = threading.Event()
        while _send(watcher, RENEWED):
            pause.wait(BEAT_SECONDS)

    threading.Thread(target=beat, name="beat", daemon=True).start()
    return watcher


def _dismiss(watcher: subprocess.Popen[bytes]) -> None:
    _send(watcher, GOODBYE)
    watcher.wait(timeout=5)


def _send(watcher: subprocess.Popen[bytes], message: bytes) -> bool:
    try:
        assert watcher.stdin is not None
        watcher.stdin.write(message)
    except (OSError, ValueError):
        return False
    return True
