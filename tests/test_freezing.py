"""What was frozen does nothing more once the call has returned."""

from __future__ import annotations

import subprocess
import sys

import psutil

from tests.freezing import freeze, stands_still

BUSY_THREADS = """
import threading
def work():
    while True:
        pass
for _ in range(8):
    threading.Thread(target=work, daemon=True).start()
print("busy", flush=True)
work()
"""


def test_every_thread_stands_still() -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY_THREADS], stdout=subprocess.PIPE) as busy:
        assert busy.stdout is not None
        assert busy.stdout.readline() == b"busy\n"
        assert not stands_still(busy.pid)
        freeze([psutil.Process(busy.pid)])
        assert stands_still(busy.pid)
        busy.kill()


def test_what_has_ended_stands_still() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        process = psutil.Process(ended.pid)
    freeze([process])
    assert stands_still(ended.pid)
