"""The process of a sensor, under a keeper: its pipes, its end."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
from typing import IO

from workers import processes
from workers.runtimes import kept
from workers.sensors.launching import GRACE_SECONDS, Launch

CHUNK_BYTES = 65_536


class Child:
    """A sensor's process. Used by one thread, which lives as long as the process: the kernel ends
    the keeper with the thread that started it."""

    def __init__(self, launch: Launch, mark: str, work_dir: str) -> None:
        self.mark = mark
        self.why = ""
        """The reason why it ended, once it was killed; empty before."""
        report_read, report_write = os.pipe()
        os.set_blocking(report_read, False)
        self._reported = os.fdopen(report_read, "rb", buffering=0)
        try:
            self.process = subprocess.Popen(
                kept.command_line(launch.argv, launch.limits, report_write),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=work_dir,
                env=dict(launch.environment),
                start_new_session=True,
                pass_fds=[report_write],
                bufsize=0,
            )
        finally:
            os.close(report_write)
        for stream in (self._stdin, self.stdout, self.stderr):
            os.set_blocking(stream.fileno(), False)
        self._outgoing = b""
        self._next: dict[str, bytes] = {}

    @property
    def _stdin(self) -> IO[bytes]:
        assert self.process.stdin is not None
        return self.process.stdin

    @property
    def stdout(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    @property
    def stderr(self) -> IO[bytes]:
        assert self.process.stderr is not None
        return self.process.stderr

    def send(self, kind: str, line: bytes) -> None:
        """Send a line; one of the same kind that still waits is replaced by it. A sensor that reads
        nothing costs no memory."""
        self._next[kind] = line
        self.flush()

    def flush(self) -> None:
        """Write what the pipe takes now."""
        with contextlib.suppress(BlockingIOError):
            while self._outgoing or self._next:
                if not self._outgoing:
                    self._outgoing = self._next.pop(next(iter(self._next)))
                try:
                    written = os.write(self._stdin.fileno(), self._outgoing)
                except (BrokenPipeError, ValueError):
                    self._outgoing, self._next = b"", {}
                    return
                self._outgoing = self._outgoing[written:]

    @property
    def has_more_to_send(self) -> bool:
        return bool(self._outgoing or self._next)

    def read(self, stream: IO[bytes]) -> bytes | None:
        """Read what is there; empty at the end of the stream, None if there is nothing yet."""
        try:
            return os.read(stream.fileno(), CHUNK_BYTES)
        except BlockingIOError:
            return None

    def terminate(self) -> None:
        """Ask it to end: SIGTERM, and SIGKILL after a grace."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)

    def wait(self, seconds: float) -> None:
        """Wait for its end, which has begun: then it is known how it ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=seconds)

    def kill(self) -> None:
        """End it and all that it started, in any state."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGQUIT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=GRACE_SECONDS)
        if self.process.poll() is None:
            processes.kill_tree(self.process.pid)
            self.process.wait()
        report = self._report()
        if "status" not in report:  # the keeper was killed, and its processes are somebody else's
            processes.kill_sensor(self.mark)
        self.close()
        self.why = _why(report)

    def close(self) -> None:
        for stream in (self._stdin, self.stdout, self.stderr, self._reported):
            with contextlib.suppress(OSError):
                stream.close()

    def wait_readable(
        self, streams: list[IO[bytes]], seconds: float, woken: int
    ) -> list[IO[bytes]]:
        """Wait until one of these has something, or ends, or the descriptor is woken."""
        with selectors.DefaultSelector() as selector:
            selector.register(woken, selectors.EVENT_READ)
            for stream in streams:
                selector.register(stream, selectors.EVENT_READ)
            if self.has_more_to_send:
                selector.register(self._stdin, selectors.EVENT_WRITE)
            ready = [key.fileobj for key, _ in selector.select(seconds)]
        if woken in ready:
            os.read(woken, CHUNK_BYTES)
        return [stream for stream in streams if stream in ready]

    def _report(self) -> dict[str, str]:
        try:
            lines = (self._reported.read() or b"").decode().splitlines()
        except (OSError, ValueError):
            return {}
        return dict(line.split(maxsplit=1) for line in lines if " " in line)


def _why(report: dict[str, str]) -> str:
    """The reason why a process ended, from its keeper's report."""
    if number := int(report.get("errno", 0)):
        return f"it could not be executed: {os.strerror(number)}"
    if exceeded := report.get("exceeded"):
        return f"it used more than its limit of {exceeded}"
    if "status" not in report:
        return "it was killed, with the process that keeps it within its limits"
    code = os.waitstatus_to_exitcode(int(report["status"]))
    if code < 0:
        return f"it was killed by {kept.signal_name(-code)}"
    return f"it ended with exit code {code}"
