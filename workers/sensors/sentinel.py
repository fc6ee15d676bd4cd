"""The sentinel of a sensor service: ends the sensors of a service that is gone, or frozen.

`python -m workers.sensors.sentinel SERVICE_PID LIMIT_SECONDS TOKEN`, started by the service, which
writes a byte to its standard input each second, whether the database answers or not:

- the service is gone: all that its sensors started is killed at once, daemons included;
- no byte for LIMIT_SECONDS, a lease: the same, as others may run them now. The service itself stays
  and begins again when it goes on;
- GOODBYE: nothing of it runs any more.
"""

from __future__ import annotations

import os
import select
import signal
import sys

from workers import processes
from workers.sentinel import POLL_SECONDS, seconds_counted

LIVES, GOODBYE = b"+", b"."


def main(service_pid: int, limit_seconds: float, token: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    standard_input = sys.stdin.fileno()
    until = seconds_counted() + limit_seconds
    with processes.end_of(service_pid) as end:
        watched = [standard_input] if end is None else [standard_input, end]
        while os.getppid() == service_pid:
            left = max(0.0, until - seconds_counted())
            wait_seconds = left if end is not None else min(left, POLL_SECONDS)
            ready, _, _ = select.select(watched, [], [], wait_seconds)
            if end in ready:
                break
            if standard_input in ready:
                message = os.read(standard_input, 4096)
                if GOODBYE in message:
                    return
                if not message:
                    break  # no process can write to us any more
                until = seconds_counted() + limit_seconds
            elif seconds_counted() >= until:
                if killed := processes.kill_all(token):
                    sys.stderr.write(
                        f"muster sentinel: sensor service {service_pid} has been frozen for "
                        f"{limit_seconds:g} s: killed {killed} processes of its sensors\n"
                    )
                until = seconds_counted() + limit_seconds
    processes.kill_all(token)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
