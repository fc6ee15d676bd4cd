"""What takes more than its share ends alone, with a reason of its own, and the worker goes on."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator

import psutil
import pytest

from tests.scenarios.installation import PATIENCE_SECONDS, Backend, Installation
from tests.workers.helpers import BOMB

PYTHON = [sys.executable, "-I", "-S", "-c"]
ASLEEP = f"61.{os.getpid()}"
"""Of this test process alone: others run this test, too."""
ESCAPE = f"""
    cd /; up=$(mktemp -u)
    env -i "PATH=$PATH" setsid sh -c "touch $up; exec sleep {ASLEEP}" &
    until [ -e "$up" ]; do sleep 0.05; done
"""

# limits are a matter of the worker and its host
pytestmark = pytest.mark.parametrize("backend", ["embedded"], indirect=True)

HOSTILE = {
    "process_limit_exceeded": [*PYTHON, BOMB, "setsid"],
    "output_limit_exceeded": ["head", "-c", "1000000000", "/dev/zero"],
    "memory_limit_exceeded": [*PYTHON, "x = b'x' * (4 << 30)"],
    "processes_left": ["sh", "-c", ESCAPE],
}


@pytest.fixture(scope="module")
def strict(backend: Backend) -> Iterator[Installation]:
    """An installation with low limits, that lets HTTP actions reach this host."""
    installation = Installation(
        backend,
        is_forked=False,  # whose environment is what the kernel tells
        action_processes=30,
        action_memory_mb=300,
        action_output_mb=8,
        http_allowed_networks="127.0.0.1/32",
    )
    try:
        installation.start_executor()
        installation.start_worker("w1", concurrency=4)
        installation.ready()
        yield installation
    finally:
        installation.close()


@contextlib.contextmanager
def silent_server() -> Iterator[tuple[int, threading.Event]]:
    """A server that takes a request and never answers; its port, and whether one came."""
    came = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        taken: list[socket.socket] = []

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    taken.append(listening.accept()[0])
                    came.set()

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield listening.getsockname()[1], came
        finally:
            for each in taken:
                each.close()


@pytest.mark.skipif(sys.platform != "linux", reason="limits need Linux")
def test_hostile_actions_end_alone_and_the_worker_goes_on(
    strict: Installation, measured: Callable[[str, float], None]
) -> None:
    muster = strict
    (worker,) = [service for service in muster.services if service.name == "w1"]
    pool = {process.pid for process in worker.tree()}

    ids = {
        reason: muster.submit("core.shell", {"argv": argv}, timeout_seconds=120)
        for reason, argv in HOSTILE.items()
    }
    beside = muster.submit_many([{} for _ in range(20)], "core.noop")
    rows = {reason: muster.wait_for_end(id) for reason, id in ids.items()}

    assert {reason: row.reason for reason, row in rows.items()} == {r: r for r in HOSTILE}
    assert {row.status for row in rows.values()} == {"failed"}
    for reason, row in rows.items():
        measured(f"{reason}, from start", (row.ended_at - row.started_at).total_seconds())
    assert [row.status for row in muster.wait_for_ends(beside)] == ["completed"] * 20
    assert pool <= {process.pid for process in worker.tree()}
    for id in ids.values():
        assert muster.processes_of(id) == []
    asleep = [p.info["cmdline"] for p in psutil.process_iter(["cmdline"])]
    assert ["sleep", ASLEEP] not in asleep
    assert muster.wait_for_end(muster.submit("core.noop")).status == "completed"
    muster.check_accounts()


def test_requests_are_cancelled_and_refused(strict: Installation) -> None:
    muster = strict
    inside = muster.submit("core.http_get", {"url": "http://169.254.169.254/"})
    with silent_server() as (port, came):
        waiting = muster.submit("core.http_get", {"url": f"http://127.0.0.1:{port}/"})
        assert came.wait(PATIENCE_SECONDS)
        muster.wait_for_status(waiting, "running")
        assert muster.cancel(waiting) == "canceling"
        row = muster.wait_for_end(waiting)

    assert (row.status, row.reason) == ("cancelled", "cancelled_running")
    assert muster.wait_for_end(inside).reason == "address_refused"
    assert muster.wait_for_end(muster.submit("core.noop")).status == "completed"
    muster.check_accounts()
