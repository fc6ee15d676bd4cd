"""Ends a worker that cannot renew its heartbeat, and whatever a dead worker left behind.

`python -m workers.sentinel WORKER_PID LIMIT_SECONDS TOKEN`, started by the worker, which writes a
byte to its standard input at each heartbeat that the database took. A process of its own, because
what it watches for is a worker that can do nothing any more: frozen, stuck, or killed. Before
others may start a second attempt, nothing of the first is left:

- no byte for LIMIT_SECONDS: the worker, its pool and all that its actions started are killed;
- the worker is gone: so is, at once, what its actions started, daemons included;
- GOODBYE: the worker has nothing left that runs.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time

import psutil

from workers import processes

RENEWED, GOODBYE = b"+", b"."

POLL_SECONDS = 0.2
"""How often to look where the kernel cannot tell of the end of a process."""


def seconds_counted() -> float:
    """A clock that cannot be set, and that goes on while the machine is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def main(worker_pid: int, limit_seconds: float, token: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    standard_input = sys.stdin.fileno()
    until = seconds_counted() + limit_seconds
    with processes.end_of(worker_pid) as end:
        while os.getppid() == worker_pid:
            watched = [standard_input] if end is None else [standard_input, end]
            left_seconds = max(0.0, until - seconds_counted())
            wait_seconds = left_seconds if end is not None else min(left_seconds, POLL_SECONDS)
            ready, _, _ = select.select(watched, [], [], wait_seconds)
            if standard_input in ready:
                told = os.read(standard_input, 4096)
                if GOODBYE in told:
                    return
                if not told:
                    break  # nobody can write to us any more
                until = seconds_counted() + limit_seconds
            elif seconds_counted() >= until:
                sys.stderr.write(
                    f"muster sentinel: no heartbeat of worker process {worker_pid} could be "
                    f"renewed for {limit_seconds:g} s: killing it and all that it runs\n"
                )
                kill_tree(worker_pid)
                break
            elif end in ready:
                break
    processes.kill_all(token)


def kill_tree(pid: int) -> None:
    """Kill a process and all that descend from it, but for this one."""
    with contextlib.suppress(psutil.NoSuchProcess):
        worker = psutil.Process(pid)
        for process in [worker, *worker.children(recursive=True)]:
            if process.pid != os.getpid():
                with contextlib.suppress(psutil.Error):
                    process.kill()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
