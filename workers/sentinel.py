"""The sentinel: ends a worker that cannot renew its heartbeat, and what a dead worker left behind.

`python -m workers.sentinel WORKER_PID LIMIT_SECONDS TOKEN`, started by the worker, which writes a
byte to its standard input at each heartbeat that the database accepted. It is a separate process,
because it watches for a worker that can do nothing any more: frozen, stuck, or killed. Before
others may start a second attempt, nothing of the first must be left:

- no byte for LIMIT_SECONDS: the worker, its pool and all that its actions started are killed;
- the worker is gone: all that its actions started is killed at once, daemons included;
- GOODBYE: nothing of the worker runs any more.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

from workers import processes

RENEWED, GOODBYE = b"+", b"."

POLL_SECONDS = 0.2
"""The interval of looks if the kernel cannot report the end of a process."""


def seconds_counted() -> float:
    """Read a clock that cannot be set, and that continues while the machine is suspended."""
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
                message = os.read(standard_input, 4096)
                if GOODBYE in message:
                    return
                if not message:
                    break  # no process can write to us any more
                until = seconds_counted() + limit_seconds
            elif seconds_counted() >= until:
                sys.stderr.write(
                    f"muster sentinel: no heartbeat of worker process {worker_pid} could be "
                    f"renewed for {limit_seconds:g} s: killing it and all that it runs\n"
                )
                processes.kill_tree(worker_pid)
                break
            elif end in ready:
                break
    processes.kill_all(token)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
