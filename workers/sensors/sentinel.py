"""The sentinel of a sensor service: ends the sensors of a service that is gone, or frozen.

`python -m workers.sensors.sentinel SERVICE_PID LIMIT_SECONDS TOKEN [json]`, started by the service,
which writes a byte to its standard input each second, whether the database answers or not:

- the service is gone: all that its sensors started is killed at once, daemons included;
- no byte for LIMIT_SECONDS, a lease: the same, as others may run them now. The service itself stays
  and begins again when it goes on;
- GOODBYE: nothing of it runs any more.
"""

from __future__ import annotations

import sys

from workers import processes
from workers.sentinel import tell, watch


def main(service_pid: int, limit_seconds: float, token: str, log_format: str = "") -> None:
    def end_sensors() -> bool:
        if killed := processes.kill_all(token):
            tell(
                "the sensor service has been frozen: killed all processes of its sensors",
                level="warning",
                log_format=log_format,
                pid=service_pid,
                silent_seconds=limit_seconds,
                killed=killed,
            )
        return False

    if watch(service_pid, limit_seconds, on_silence=end_sensors):
        processes.kill_all(token)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), *sys.argv[3:])
