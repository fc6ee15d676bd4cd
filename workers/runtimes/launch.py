"""Becomes the command of a shell action: `launch.py ERROR_FD PARENT_PID COMMAND ARGUMENT...`

A program of its own, because what it does must happen between fork and exec, and Python code must
not run there in a process with threads. It has the kernel kill the command when the worker's
process dies, gives signals their defaults back (a pool child ignores SIGINT, Python SIGPIPE),
and tells why there is nothing to execute on ERROR_FD, which a successful exec closes.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    error_fd, parent_pid, argv = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    os.set_inheritable(error_fd, False)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent_pid:
            os._exit(1)  # it died before it could be watched
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(name, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - argv is a list on purpose: no shell
    except OSError as error:
        os.write(error_fd, str(error.errno).encode())
        os._exit(127)


main()
