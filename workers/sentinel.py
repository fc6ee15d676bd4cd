"""The sentinel: ends a worker that cannot renew its heartbeat, and what a dead worker left behind.

`python -m workers.sentinel WORKER_PID LIMIT_SECONDS TOKEN [json]`, started by the worker, which
writes a byte to its standard input at each heartbeat that the database accepted. With `json`, its
line is as `LOG_FORMAT=json` wants it. It is a separate process, because it watches for a worker
that can do nothing any more: frozen, stuck, or killed. Before others may start a second attempt,
nothing of the first must be left:

- no byte for LIMIT_SECONDS: the worker, its pool and all that its actions started are killed;
- the worker is gone: all that its actions started is killed at once, daemons included;
- GOODBYE: nothing of the worker runs any more.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable
from typing import Any

from orchestrator.core import log_lines
from orchestrator.core.steady_clock import seconds_counted
from workers import processes

RENEWED, GOODBYE = b"+", b"."
AS_JSON = "json"

POLL_SECONDS = 0.2
"""The interval of looks if the kernel cannot report the end of a process."""


def watch(watched_pid: int, limit_seconds: float, *, on_silence: Callable[[], bool]) -> bool:
    """Watch our parent process, which writes to our standard input. Returns True when it is gone,
    and False when it says GOODBYE. `on_silence` is called whenever no byte came for limit_seconds;
    if it returns True, that is the end, too."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    standard_input = sys.stdin.fileno()
    until = seconds_counted() + limit_seconds
    with processes.end_of(watched_pid) as end:
        watched = [standard_input] if end is None else [standard_input, end]
        while os.getppid() == watched_pid:
            left_seconds = max(0.0, until - seconds_counted())
            wait_seconds = left_seconds if end is not None else min(left_seconds, POLL_SECONDS)
            ready, _, _ = select.select(watched, [], [], wait_seconds)
            if standard_input in ready:
                message = os.read(standard_input, 4096)
                if GOODBYE in message:
                    return False
                if not message:
                    break  # no process can write to us any more
                until = seconds_counted() + limit_seconds
            elif end in ready:
                break
            elif seconds_counted() >= until:
                if on_silence():
                    break
                until = seconds_counted() + limit_seconds
    return True


def tell(event: str, *, level: str, log_format: str, **fields: Any) -> None:
    """Write a line to the log of the service that is watched."""
    as_json = log_format == AS_JSON
    line = log_lines.line(event, level=level, logger="workers.sentinel", as_json=as_json, **fields)
    sys.stderr.write(line)
    sys.stderr.flush()


def main(worker_pid: int, limit_seconds: float, token: str, log_format: str = "") -> None:
    def end_worker() -> bool:
        processes.kill_tree(worker_pid)
        processes.kill_all(token)  # before the line, which nobody may read
        tell(
            "no heartbeat of the worker could be renewed: killed it and all that it ran",
            level="error",
            log_format=log_format,
            pid=worker_pid,
            silent_seconds=limit_seconds,
        )
        return True

    if watch(worker_pid, limit_seconds, on_silence=end_worker):
        processes.kill_all(token)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), *sys.argv[3:])
