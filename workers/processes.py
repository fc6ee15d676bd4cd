"""The processes that actions started: finding them, and ending them.

They are known by markers in their environment, which children inherit: a daemon that left its
session and its process group is found too. A process that clears its environment is found if it
stays in the working directory, or in a session that a found process leads, or descends from a found
process: all processes of a command do, as its keeper adopts them.

The names do not begin with `MUSTER_`, as an unknown one stops Muster's own commands, and an action
may run `manage.py`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator

import psutil

EXECUTION_ID = "MSTR_EXECUTION_ID"
ATTEMPT = "MSTR_ATTEMPT"
ACTION = "MSTR_ACTION"
RETRIES = "MSTR_RETRIES"
TOKEN = "MSTR_TOKEN"  # noqa: S105 - the name of a variable
"""The token of the execution, for an action that asks for one."""
WARM = "MSTR_WARM"
"""The mark of a warm process: the process id of its launcher, and a number."""
SENSOR = "MSTR_SENSOR"
"""The mark of a sensor's processes: its name and the fence of its lease."""
WORKER_TOKEN = "MSTR_WORKER_TOKEN"  # noqa: S105 - names one life of a worker, opens nothing
"""Set by the worker in its own environment, from where its pool inherits it."""

PR_SET_PDEATHSIG = 1
POLL_SECONDS = 0.02
KILL_ROUNDS = 20
"""Processes may fork while others are killed: after this many rounds the rest is left alone."""


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when the one that forked it dies, for any reason."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent_pid:
            os._exit(1)  # it died before it could be watched


@contextlib.contextmanager
def end_of(pid: int) -> Iterator[int | None]:
    """Open a descriptor that becomes readable when the process ends; None if the kernel has
    none."""
    try:
        descriptor = os.pidfd_open(pid)
    except (AttributeError, OSError):
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def markers(execution_id: str, attempt: int, action_ref: str) -> dict[str, str]:
    """The environment that marks every process of this attempt."""
    return _of_this_life({EXECUTION_ID: execution_id, ATTEMPT: str(attempt), ACTION: action_ref})


def warm_markers(mark: str) -> dict[str, str]:
    """The environment that marks a warm process, whichever execution it works for."""
    return _of_this_life({WARM: mark})


def sensor_markers(mark: str) -> dict[str, str]:
    """The environment that marks the processes of one life of a sensor."""
    return _of_this_life({SENSOR: mark})


def _of_this_life(marks: dict[str, str]) -> dict[str, str]:
    """These marks, and that of the service which starts the process, if it has one."""
    token = os.environ.get(WORKER_TOKEN)
    return {**marks, WORKER_TOKEN: token} if token else marks


def work_dir_prefix(execution_id: str, attempt: int | None = None) -> str:
    """The prefix of the name of the working directory of this attempt (of any if None)."""
    return f"muster-attempt-{execution_id}-" + (f"{attempt}-" if attempt is not None else "")


def find(
    execution_id: str, attempt: int | None = None, *, session_id: int | None = None
) -> list[psutil.Process]:
    """Find the live processes of this attempt (of any attempt if None), and of the given
    session."""
    wanted = {EXECUTION_ID: execution_id}
    if attempt is not None:
        wanted[ATTEMPT] = str(attempt)
    prefix = work_dir_prefix(execution_id, attempt)

    def matches(process: psutil.Process) -> bool:
        marked = wanted.items() <= process.environ().items()
        return marked or os.path.basename(process.cwd()).startswith(prefix)

    return _matching(matches, session_id)


def terminate(
    execution_id: str,
    attempt: int | None = None,
    *,
    grace_seconds: float,
    session_id: int | None = None,
) -> int:
    """End them: SIGTERM, after the grace SIGKILL. Waits until they are gone; returns how many there
    were. `session_id` is for a process whose environment may have no markers."""
    return _end(lambda: find(execution_id, attempt, session_id=session_id), grace_seconds)


def kill_all(token: str, *, grace_seconds: float = 0.0) -> int:
    """End every action process of one life of a worker; returns how many there were."""

    def matches(process: psutil.Process) -> bool:
        marks = process.environ()
        # pool children may carry the token, but none of the others
        is_ours = EXECUTION_ID in marks or WARM in marks or SENSOR in marks
        return is_ours and marks.get(WORKER_TOKEN) == token

    return _end(lambda: _matching(matches), grace_seconds)


def kill_warm(mark: str) -> int:
    """End a warm process, or all those of the launcher with this process id, and all that they
    started; returns how many there were."""
    token = os.environ.get(WORKER_TOKEN)

    def matches(process: psutil.Process) -> bool:
        marks = process.environ()
        launcher, _, _ = marks.get(WARM, "").partition(".")
        return mark in (marks.get(WARM), launcher) and marks.get(WORKER_TOKEN) == token

    return _end(lambda: _matching(matches), 0.0)


def kill_sensor(mark: str) -> int:
    """End every process of one life of a sensor; returns how many there were."""
    token = os.environ.get(WORKER_TOKEN)

    def matches(process: psutil.Process) -> bool:
        marks = process.environ()
        return marks.get(SENSOR) == mark and marks.get(WORKER_TOKEN) == token

    return _end(lambda: _matching(matches), 0.0)


def kill_tree(pid: int) -> None:
    """Kill a process and all its descendants, except this one."""
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for process in [root, *root.children(recursive=True)]:
            if process.pid != os.getpid():
                with contextlib.suppress(psutil.Error):
                    process.kill()


def _end(find_them: Callable[[], list[psutil.Process]], grace_seconds: float) -> int:
    ended: set[psutil.Process] = set()
    if grace_seconds > 0:
        asked = find_them()
        _signal(asked, psutil.Process.terminate)
        _wait(asked, grace_seconds)
        ended.update(asked)
    for _ in range(KILL_ROUNDS):
        left = find_them()
        if not left:
            break
        _signal(left, psutil.Process.kill)
        _wait(left, 1.0)
        ended.update(left)
    return len(ended)


def _signal(them: Iterable[psutil.Process], send: Callable[[psutil.Process], None]) -> None:
    for process in them:
        try:
            send(process)
        except psutil.Error:  # gone, or another user's
            continue


def _wait(them: Iterable[psutil.Process], seconds: float) -> None:
    until = time.monotonic() + seconds
    while any(_lives(process) for process in them) and time.monotonic() < until:
        time.sleep(POLL_SECONDS)


def _lives(process: psutil.Process) -> bool:
    """Return False for a zombie too: it only waits for its parent."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _matching(
    matches: Callable[[psutil.Process], bool], session_id: int | None = None
) -> list[psutil.Process]:
    """Find the processes that match, all in the sessions that they lead, and their descendants."""
    matching: list[psutil.Process] = []
    others: list[psutil.Process] = []
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        try:
            matched = matches(process)
        except (psutil.Error, OSError):  # gone, or another user's
            matched = False
        (matching if matched else others).append(process)
    sessions = {process.pid for process in matching} | {session_id} - {None}
    parents = {process.pid for process in matching}
    while others and (parents or sessions):
        more = [p for p in others if _session(p) in sessions or _parent(p) in parents]
        others = [process for process in others if process not in more]
        matching += more
        parents, sessions = {process.pid for process in more}, set()
    return [process for process in matching if _lives(process)]


def _parent(process: psutil.Process) -> int | None:
    try:
        return int(process.ppid())
    except psutil.Error:
        return None


def _session(process: psutil.Process) -> int | None:
    try:
        return os.getsid(process.pid)
    except OSError:
        return None
