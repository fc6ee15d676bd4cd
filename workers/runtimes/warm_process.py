"""A warm process: started below a keeper, used for one call after another, kept by its slot.

It has a clean environment and no credentials (`workers.isolated.runner`), stands under a keeper as
every command does, and has a working directory that is emptied after each call. Requests go down
and answers come back as JSON through pipes; an answer is foreign data, of limited size.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import pwd
import select
import shutil
import signal
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings

from orchestrator.core import isolation
from orchestrator.core.packs import fetching
from workers import processes
from workers.isolated import functions, results
from workers.isolated.messages import HEADER, LONGEST_BYTES
from workers.runtimes import keeper, kept, work_dirs

MOST_PACKS = 3
"""The warm processes that a slot keeps: of the packs, or their releases, that it ran last."""
MOST_CALLS = 100_000
"""A process that has made so many ends: the C library keeps every value that an environment
variable ever had, 95 bytes for each call, and actions keep what they like."""
IDLE_LOOK_SECONDS = 1.0
"""The pause between two looks of the keeper at a process that waits for work."""
GIVE_UP_SECONDS = 5.0
"""A keeper that does not end within its grace and this time is killed itself."""
START_SECONDS = 10.0
THREAD_AND_DIRECTORY = 3
"""The number of links of a process's `task` directory that has one thread."""
CHILDREN_BYTES = 64
"""More than one child takes in the list of a process's children."""
CHUNK_BYTES = 65_536

START = (
    "import sys; sys.path[:] = sys.argv.pop(1).split(':'); "
    "from workers.isolated import runner; runner.main()"
)


@dataclass(frozen=True)
class Function:
    """A function to call: `package.module:function`, with its parameters as keywords."""

    pack_path: str
    """The key of its process; empty for code of Muster itself."""
    folder: str
    """The last place where its module is looked for."""
    entry_point: str
    parameters: Mapping[str, Any]
    environment: Mapping[str, str] = field(default_factory=dict)
    limit_bytes: int = results.LIMIT_BYTES
    """The most JSON that it may return."""


def why_not() -> str:
    """The reason why this worker cannot start a warm process; empty if it can."""
    if reason := kept.why_not():
        return reason
    user = isolation.user()
    return _why_not_as(user) if user is not None else ""


@functools.cache
def _why_not_as(user: pwd.struct_passwd) -> str:
    code = START.replace("runner.main()", "")
    try:
        tried = subprocess.run(
            [sys.executable, "-I", "-c", code, _python_path()],
            cwd="/",
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            **isolation.as_user(user),
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"{user.pw_name} cannot execute {sys.executable}: {error}"
    lines = tried.stderr.strip().splitlines()
    return f"{user.pw_name} cannot load Muster's own code: {lines[-1]}" if lines else ""


class Warm:
    """A warm process, seen from its launcher. Nothing here waits for it without a limit."""

    def __init__(self, function: Function) -> None:
        """Start one. Raises OSError or SubprocessError."""
        self.report: dict[str, str] = {}
        """The report of its keeper: `command`, and the rest when all is over."""
        self.calls = 0
        self.written_bytes = 0
        """The number of bytes that were printed during this call."""
        self.is_over = False
        """Its keeper has ended, and all processes with it."""
        self.is_mute = self.has_too_much_to_say = False
        self._is_looked_after = False
        self._solitude: _Solitude | None = None
        self._unsent = memoryview(b"")
        self._received = bytearray()
        self._reported = bytearray()
        self._mark = f"{os.getpid()}.{next(_numbers)}"
        self._exits = contextlib.ExitStack()
        try:
            self.work_dir = self._exits.enter_context(work_dirs.made("warm", os.getpid()))
            self._start(function)
        except BaseException:
            self._exits.close()
            raise
        self._changed_at = os.stat(self.work_dir).st_ctime_ns
        _processes.add(self)

    def _start(self, function: Function) -> None:
        given = kept.limits_of({}, grace_seconds=settings.MUSTER.cancel_grace_seconds)
        given |= kept.give_to_action(self.work_dir) | {"idle_look_seconds": IDLE_LOOK_SECONDS}
        flags = ["-I", "-u"]
        if function.pack_path and fetching.is_of_release(function.pack_path):
            flags.append("-B")  # a release has the files of its digest, and no others
        argv = [sys.executable, *flags, "-c", START, _python_path(), function.folder]
        report_fd, report_write = os.pipe()
        self._exits.callback(os.close, report_fd)
        try:
            process = subprocess.Popen(
                kept.command_line(argv, given, report_write),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self.work_dir,
                env=self._environment(function),
                start_new_session=True,
                pass_fds=[report_write],
                bufsize=0,
            )
        finally:
            os.close(report_write)
        self._keeper = process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._requests, self._answers = process.stdin.fileno(), process.stdout.fileno()
        self._output, self._reports = process.stderr.fileno(), report_fd
        self._poll = select.poll()
        for fd in (self._requests, self._answers, self._output, self._reports):
            os.set_blocking(fd, False)
        for fd in (self._answers, self._output, self._reports):
            self._poll.register(fd, select.POLLIN)

    def _environment(self, function: Function) -> dict[str, str]:
        pack_path = function.pack_path or function.folder
        environment = kept.clean_environment(self.work_dir, pack_path)
        return environment | processes.warm_markers(self._mark)

    # --- one call

    def send(self, message: bytes) -> bool:
        """Send a request, as far as the pipe takes it; returns False if nobody can read it."""
        self.calls += 1
        self.written_bytes = 0
        self._received.clear()
        self._unsent = memoryview(message)
        self._write()
        if self._unsent:
            self._poll.register(self._requests, select.POLLOUT)
        return not self.is_mute

    def _write(self) -> None:
        try:
            self._unsent = self._unsent[os.write(self._requests, self._unsent) :]
        except BlockingIOError:
            return
        except OSError:  # it reads no requests any more, and will end, or be ended
            self._unsent = memoryview(b"")
            self.is_mute = True

    def answer(self) -> bytes | None:
        """The answer, once it is complete."""
        if len(self._received) < HEADER.size:
            return None
        (size,) = HEADER.unpack_from(self._received)
        if size > LONGEST_BYTES:
            self.has_too_much_to_say = True
            return None
        if len(self._received) < HEADER.size + size:
            return None
        return bytes(self._received[HEADER.size : HEADER.size + size])

    def wait(self, seconds: float, on_output: Callable[[bytes], None]) -> None:
        """Wait until it says something, or for so long. What it printed before it answered comes
        with the answer."""
        for fd, _ in self._poll.poll(seconds * 1000):
            if fd == self._requests:
                self._write()
                if not self._unsent:
                    self._poll.unregister(fd)
            elif fd == self._reports:
                self._hear()
            elif fd == self._output:
                self._take_output(on_output)
            elif (chunk := self._read(fd)) is not None:
                self._received += chunk
                self.is_mute = self.is_mute or not chunk

    def _take_output(self, on_output: Callable[[bytes], None]) -> None:
        if chunk := self._read(self._output):
            self.written_bytes += len(chunk)
            on_output(chunk)

    def _hear(self) -> None:
        """Take what the keeper reports; it ends at the end of that."""
        while chunk := self._read(self._reports):
            self._reported += chunk
        self.is_over = self.is_over or chunk is not None
        lines = self._reported.decode().splitlines(keepends=True)
        self.report |= dict(line.split() for line in lines if line.endswith("\n"))

    def _read(self, fd: int) -> bytes | None:
        """Read what is there; None if nothing is. A stream that has ended is watched no more."""
        try:
            chunk = os.read(fd, CHUNK_BYTES)
        except BlockingIOError:
            return None
        if not chunk:
            with contextlib.suppress(KeyError):
                self._poll.unregister(fd)
        return chunk

    # --- between two calls

    @property
    def is_ready(self) -> bool:
        """True if it waits for a request: it lives, and has said nothing unasked."""
        for fd, _ in self._poll.poll(0):
            if fd == self._answers:
                return False
            if fd == self._reports:
                self._hear()
            else:
                self._read(fd)
        return not self.is_over

    def tidy(self) -> bool:
        """Make it ready for another call; returns False if that is not possible."""
        if self._is_looked_after:
            self._is_looked_after = False
            self.signal(signal.SIGUSR2)
        if self._unsent or self.is_mute or self.is_over:
            return False
        try:
            if os.stat(self.work_dir).st_ctime_ns != self._changed_at:
                _empty(self.work_dir)
                self._changed_at = os.stat(self.work_dir).st_ctime_ns
        except OSError:
            return False
        return True

    # --- its keeper

    def signal(self, number: signal.Signals) -> None:
        # not by its number alone, which another process may have once it was waited for
        with contextlib.suppress(ProcessLookupError):
            self._keeper.send_signal(number)

    def be_looked_after(self) -> bool:
        """Have the keeper look more often; returns False if it does not listen yet."""
        if "command" in self.report:
            self._is_looked_after = True
            self.signal(signal.SIGUSR1)
        return self._is_looked_after

    def strays(self) -> list[int]:
        """The processes that its calls have started and that still live."""
        if "command" not in self.report:
            self._hear()
        if self.is_over:
            return []
        pid = int(self.report["command"])
        if self._solitude is None:
            self._solitude = _Solitude(pid, self._keeper.pid)
            self._exits.callback(self._solitude.close)
        if self._solitude.is_kept:
            return []
        others = set(keeper.descendants(self._keeper.pid)) - {pid}
        return [each for each in others if not keeper.is_over(each)]

    def has_left(self, pid: int) -> bool:
        """Return True if this process is in a session of its own."""
        try:
            return os.getsid(pid) != int(self.report["command"])
        except OSError:
            return False

    def end(self) -> None:
        """End it, with all that its calls have started."""
        if self not in _processes:
            return
        _processes.discard(self)
        self.signal(signal.SIGQUIT)
        try:
            self._keeper.wait(GIVE_UP_SECONDS)
        except subprocess.TimeoutExpired:
            processes.kill_tree(self._keeper.pid)
            self._keeper.wait()
        self._hear()
        self.is_over = True
        if "status" not in self.report:
            # the keeper was killed, and what has escaped is no descendant of ours any more
            processes.kill_warm(self._mark)
        for stream in (self._keeper.stdin, self._keeper.stdout, self._keeper.stderr):
            assert stream is not None
            stream.close()
        self._exits.close()


class _Solitude:
    """The check that a process has one thread and no child, and its keeper no other child: by far
    the most frequent case, and three reads of files that stay open instead of a search."""

    def __init__(self, pid: int, keeper_pid: int) -> None:
        self._expected = f"{pid} ".encode()
        self._opened: list[int] = []
        with contextlib.suppress(OSError):  # it has ended
            for path in (
                f"/proc/{keeper_pid}/task/{keeper_pid}/children",
                f"/proc/{pid}/task",
                f"/proc/{pid}/task/{pid}/children",
            ):
                self._opened.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    @property
    def is_kept(self) -> bool:
        try:
            of_keeper, threads, children = self._opened
            return (
                os.pread(of_keeper, CHILDREN_BYTES, 0) == self._expected
                and os.fstat(threads).st_nlink == THREAD_AND_DIRECTORY
                and not os.pread(children, CHILDREN_BYTES, 0)
            )
        except (OSError, ValueError):
            return False

    def close(self) -> None:
        for fd in self._opened:
            os.close(fd)


def _empty(folder: str) -> None:
    """Remove all that is in this folder. Raises OSError."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry)
            else:
                os.unlink(entry)


def _python_path() -> str:
    """The places where the process looks for modules: those of the worker, so that it finds the
    same, but for the packs that trusted actions have had it look for."""
    root = str(settings.BASE_DIR)
    entries = [entry or root for entry in sys.path if entry not in functions.added]
    return os.pathsep.join(dict.fromkeys([root, *entries]))


class Kept:
    """The processes that one launcher keeps."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Warm] = OrderedDict()
        """By the path of their pack, the one that was used last at the end."""

    def take(self, function: Function) -> Warm:
        """The process for this function. Raises OSError or SubprocessError."""
        process = self._kept.pop(function.pack_path, None)
        if process is not None and not process.is_ready:
            process.end()
            process = None
        return process or Warm(function)

    def put_back(self, function: Function, process: Warm) -> None:
        if process.calls >= MOST_CALLS or not process.tidy():
            process.end()
            return
        self._kept[function.pack_path] = process
        if len(self._kept) > MOST_PACKS:
            _, oldest = self._kept.popitem(last=False)
            oldest.end()


def end_all() -> None:
    """End the warm processes of all threads of this process."""
    for process in list(_processes):
        process.end()


_numbers = itertools.count(1)
_processes: set[Warm] = set()
"""All warm processes of this process."""
