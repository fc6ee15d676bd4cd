"""Runs a command within its limits: `keeper.py FD PARENT_PID LIMITS AFTERWARDS COMMAND...`

A program of its own beside every command, because no one else can do it:

- What must happen between fork and exec is Python, and Python must not run there in a process
  with threads, as a worker is.
- It is the subreaper of all that the command starts (`PR_SET_CHILD_SUBREAPER`). Who forks twice,
  calls `setsid`, clears its environment or changes its directory stays its descendant, is counted,
  and ends with the command.
- It outlives the worker by a moment: the kernel tells it (`PR_SET_PDEATHSIG`), and it kills the
  rest. The command itself is killed by the kernel if the keeper dies.

Limits that the kernel holds for each process are set before exec. Number of processes and memory
are those of all together, which no rlimit knows: they are looked at many times a second. A fork
bomb must not starve who looks, so the keeper takes a real-time priority where it may, which is
where `RLIMIT_NPROC` does not bind; elsewhere that is set, far above what is looked for, since it
counts all processes of the user.

LIMITS is `name=number` by commas. SIGTERM asks for the end, with a grace from SIGTERM to SIGKILL;
SIGQUIT is without. FD gets lines of `name value`, see `Keeper.keep`. AFTERWARDS is a command, an
argument a line, that is run if keeper or worker are gone before the end; it may be empty. Standard
library only, and little of it: this is started without `site` for every command.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys
import time
import warnings  # noqa: F401 - execvp does, and then the user may be one who cannot read it

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

FIRST_LOOK_SECONDS = 0.02
LONGEST_LOOK_SECONDS = 0.1
"""Between two looks: a process can fill some 200 MB in that time."""
LOOKING_SHARE = 10
"""A look may take this part of the time at most."""
KILL_SECONDS = 20.0
"""What cannot be killed for so long is another user's, or stuck in the kernel."""
HEADROOM_PROCESSES = 1024

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
RLIMITS = {
    "cpu_seconds": resource.RLIMIT_CPU,
    "address_space_bytes": resource.RLIMIT_AS,
    "file_size_bytes": resource.RLIMIT_FSIZE,
    "open_files": resource.RLIMIT_NOFILE,
}


def main() -> None:
    report_fd, parent_pid = int(sys.argv[1]), int(sys.argv[2])
    pairs = (pair.partition("=") for pair in sys.argv[3].split(","))
    limits = {name: float(number) for name, _, number in pairs}
    os.set_inheritable(report_fd, False)
    promise = _promise(sys.argv[4].split("\n")) if sys.argv[4] else None
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None).prctl
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent_pid:
        os._exit(1)  # it died before it could be watched
    wakes = _wakes()
    # so that a command forked from here is an ordinary process again
    with contextlib.suppress(AttributeError, OSError):
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
    command = os.fork()
    if command == 0:
        try:
            _become(sys.argv[5:], limits, report_fd)
        except OSError as error:
            os.write(report_fd, f"errno {error.errno}\n".encode())
        finally:
            os._exit(127)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)
    _let_go_of_the_streams()
    report = Keeper(command, parent_pid, limits, wakes).keep()
    with contextlib.suppress(BrokenPipeError):
        told = "".join(f"{name} {value}\n" for name, value in report.items())
        os.write(report_fd, told.encode())
    if promise is not None and os.getppid() == parent_pid:
        os.write(promise, b"kept\n")


def _promise(afterwards: list[str]) -> int:
    """Have a shell run that command when the descriptor is closed with nothing written to it.

    It has no marker, no parent and no directory of ours: who kills everything of an execution does
    not find it.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            os.chdir("/")
            if os.fork() == 0:
                _let_go_of_the_streams()
                os.dup2(reader, 0)
                environment = {k: v for k, v in os.environ.items() if not k.startswith("MSTR_")}
                script = 'read kept || exec "$@" </dev/null'
                os.execvpe("sh", ["sh", "-c", script, "sh", *afterwards], environment)  # noqa: S606
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(reader)
    return writer


# --- the command -------------------------------------------------------------------------------


def _become(argv: list[str], limits: dict[str, float], report_fd: int) -> None:
    os.setsid()
    signal.set_wakeup_fd(-1)
    keeper = os.getppid()
    with contextlib.suppress(ValueError, OSError):  # a lower hard limit holds already
        if limits.get("uid", os.geteuid()) != 0:
            _limit_processes_of_user(limits)
    for name, which in RLIMITS.items():
        if name in limits:
            hard = resource.getrlimit(which)[1]
            soft = int(limits[name])
            soft = soft if hard == resource.RLIM_INFINITY else min(soft, hard)
            # SIGXCPU comes at the soft limit, and SIGKILL at the hard one
            above = 1 if which == resource.RLIMIT_CPU and soft != hard else 0
            resource.setrlimit(which, (soft, soft + above))
    if "uid" in limits:
        os.setgroups([])
        os.setgid(int(limits["gid"]))
        os.setuid(int(limits["uid"]))
    if sys.platform == "linux":
        # after setuid, which clears it
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(1)
    for number in (*HEARD, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.execvp(argv[0], argv)  # noqa: S606 - argv is a list on purpose: no shell


def _limit_processes_of_user(limits: dict[str, float]) -> None:
    if "processes" not in limits:
        return
    uid = int(limits.get("uid", os.getuid()))
    now = 0
    for entry in os.scandir("/proc"):
        with contextlib.suppress(OSError):
            now += entry.name.isdigit() and entry.stat().st_uid == uid
    # threads count, too: four each is more than there are
    most = 4 * now + max(HEADROOM_PROCESSES, int(4 * limits["processes"]))
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


# --- the keeper --------------------------------------------------------------------------------

HEARD = (signal.SIGTERM, signal.SIGQUIT, signal.SIGCHLD)


def _wakes() -> int:
    """A descriptor that gives a byte, its number, for every signal that is heard."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in HEARD:
        signal.signal(number, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return reader


def _let_go_of_the_streams() -> None:
    """They are the command's: who reads them waits for their end."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    os.close(nothing)


class Keeper:
    """What is known of one command and of all that it started."""

    def __init__(self, command: int, parent_pid: int, limits: dict[str, float], wakes: int) -> None:
        self.command = command
        self.parent_pid = parent_pid
        self.limits = limits
        self.wakes = wakes
        self.peak_bytes = 0
        self.exceeded = ""
        self.kill_at = 0.0
        """When what is being stopped is killed; 0 while nothing is."""

    def keep(self) -> dict[str, object]:
        """Until the command, and all that it started, is over: what to report of it.

        `status` as of `wait`, `peak_bytes`, `exceeded` names the limit that ended it (`memory`,
        `processes`), `left` is how many processes outlived it in sessions of their own.
        """
        wait_seconds = FIRST_LOOK_SECONDS
        while True:
            select.select([self.wakes], [], [], wait_seconds)
            asked_at = time.monotonic()
            self._hear(asked_at)
            self._reap()
            if self.kill_at:
                if asked_at >= self.kill_at or (self._has_ended() and not self._others()):
                    break
            elif self._has_ended():
                break
            else:
                self._look()
                if self.exceeded:
                    break
            looked_seconds = time.monotonic() - asked_at
            wait_seconds = min(2 * wait_seconds, LONGEST_LOOK_SECONDS)
            wait_seconds = max(wait_seconds, LOOKING_SHARE * looked_seconds)
            if self.kill_at:
                wait_seconds = min(FIRST_LOOK_SECONDS, max(self.kill_at - asked_at, 0.001))
        left = 0 if self.exceeded or self.kill_at else self._detached()
        self._kill_all()
        _, status, usage = os.wait4(self.command, 0)
        own_peak = usage.ru_maxrss * (1024 if sys.platform == "linux" else 1)
        report: dict[str, object] = {
            "status": status,
            "peak_bytes": max(self.peak_bytes, own_peak),
            "left": left,
        }
        return report | ({"exceeded": self.exceeded} if self.exceeded else {})

    def _hear(self, now: float) -> None:
        try:
            heard = os.read(self.wakes, 4096)
        except BlockingIOError:
            return
        if signal.SIGQUIT in heard or (signal.SIGTERM in heard and os.getppid() != self.parent_pid):
            self.kill_at = now
        elif signal.SIGTERM in heard and not self.kill_at:
            self.kill_at = now + self.limits["grace_seconds"]
            for pid in descendants(os.getpid()):
                _signal(pid, signal.SIGTERM)

    def _reap(self) -> None:
        """All that is over but the command, whose id must stay its own until the end."""
        for pid in children(os.getpid()):
            if pid != self.command:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)

    def _has_ended(self) -> bool:
        how = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.command, how) is not None

    def _others(self) -> list[int]:
        """What lives beside the command, or outlived it."""
        return [pid for pid in descendants(os.getpid()) if pid != self.command]

    def _detached(self) -> int:
        """How many outlived the command in sessions that are not its own."""
        count = 0
        for pid in self._others():
            with contextlib.suppress(OSError):
                count += os.getsid(pid) != self.command and not _is_over(pid)
        return count

    def _look(self) -> None:
        most_processes = self.limits.get("processes", float("inf"))
        most_bytes = self.limits.get("memory_bytes", float("inf"))
        found = descendants(os.getpid(), most=most_processes)
        if len(found) > most_processes:
            self.exceeded = "processes"
            return
        used_bytes = sum(map(memory_of, found))
        if used_bytes > most_bytes:
            # pages that forked processes share were counted for each of them
            used_bytes = sum(map(share_of_memory, found))
        self.peak_bytes = max(self.peak_bytes, used_bytes)
        if used_bytes > most_bytes:
            self.exceeded = "memory"

    def _kill_all(self) -> None:
        """Faster than they can fork: the kernel kills a whole group at once."""
        until = time.monotonic() + KILL_SECONDS
        while True:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.command, signal.SIGKILL)
            found = descendants(os.getpid())
            for pid in found:
                _signal(pid, signal.SIGKILL)
            self._reap()
            if not self._others() and self._has_ended():
                return
            if time.monotonic() > until:
                os._exit(1)
            time.sleep(0.001)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def descendants(pid: int, *, most: float = float("inf")) -> list[int]:
    """All below that process, as of now; no more than one above `most` of them."""
    found = children(pid)
    for each in found:  # grows on the way
        if len(found) > most:
            break
        found += children(each)
    return found


def children(pid: int) -> list[int]:
    """The processes that this one started, or adopted, whichever of its threads did."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                found += map(int, file.read().split())
    except (OSError, ValueError):  # gone meanwhile
        pass
    return found


def _is_over(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"Z", b"X")
    except OSError:
        return True


def memory_of(pid: int) -> int:
    """Bytes that are its own and resident: without files that are mapped."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            _, resident, shared, *_ = map(int, file.read().split())
    except (OSError, ValueError):
        return 0
    return (resident - shared) * PAGE_BYTES


def share_of_memory(pid: int) -> int:
    """The same, with its share only of what it shares with others."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            for line in file:
                if line.startswith("Pss_Anon:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return memory_of(pid)


if __name__ == "__main__":
    main()
