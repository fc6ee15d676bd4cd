"""Run a command within its limits: `keeper.py FD PARENT_PID LIMITS AFTERWARDS COMMAND...`

A separate program for every command, because nothing else can do it:

- Python code must run between fork and exec, and that is not safe in a process with threads, such
  as a worker.
- It is the subreaper of all that the command starts (`PR_SET_CHILD_SUBREAPER`). A process that
  forks twice, calls `setsid`, clears its environment or changes its directory stays its
  descendant, is counted, and ends with the command.
- It outlives the worker by a moment: the kernel signals it (`PR_SET_PDEATHSIG`), and it kills the
  rest. If the keeper dies, the kernel kills the command itself.

Limits that the kernel enforces for each process are set before exec. The limits of processes and
memory are for all together, which no rlimit covers: they are checked many times a second. A fork
bomb must not starve the keeper, so it takes a real-time priority if it may, which is where
`RLIMIT_NPROC` has no effect; elsewhere that is set, far above the limit to check, since it counts
all processes of the user.

LIMITS is `name=number`, separated by commas. SIGTERM asks for the end, with a grace from SIGTERM to
SIGKILL; SIGQUIT has no grace. A command that waits for work has `idle_look_seconds`, the pause
between two looks; SIGUSR1 says that it has some, SIGUSR2 that it waits again. FD gets lines of
`name value`: `command`, its process id, and those of `Keeper.keep`. AFTERWARDS is a command, an
argument a line, that is run if keeper or worker are gone before the end; it may be empty. Uses only
the standard library, and little of it: this is started without `site` for every command.
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
PR_CAPBSET_DROP = 24
CAP_SYS_PTRACE = 19
"""With it, root reads the memory of every process, the worker's too."""

FIRST_LOOK_SECONDS = 0.02
LONGEST_LOOK_SECONDS = 0.1
"""The longest time between two looks: a process can fill some 200 MB in that time."""
LOOKING_SHARE = 10
"""A look takes at most one part in this many of the time."""
KILL_SECONDS = 20.0
"""A process that cannot be killed for this long belongs to another user, or is stuck in the
kernel."""
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
    # with a reset on fork, so that the command has an ordinary priority
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
    os.write(report_fd, f"command {command}\n".encode())
    _let_go_of_the_streams()
    report = Keeper(command, parent_pid, limits, wakes).keep()
    with contextlib.suppress(BrokenPipeError):
        lines = "".join(f"{name} {value}\n" for name, value in report.items())
        os.write(report_fd, lines.encode())
    if promise is not None and os.getppid() == parent_pid:
        os.write(promise, b"kept\n")


def _promise(afterwards: list[str]) -> int:
    """Have a shell run that command if the descriptor is closed and nothing was written to it.

    The shell has no marker, parent or directory of ours, so that it is not killed with the
    execution.
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
    with contextlib.suppress(ValueError, OSError):  # a lower hard limit is set already
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
        prctl = ctypes.CDLL(None).prctl
        if "drop_ptrace" in limits:  # refused to all but root, who alone may have it
            prctl(PR_CAPBSET_DROP, CAP_SYS_PTRACE)
        # after setuid, which clears it
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
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
    # threads count too: more than four each is not expected
    most = 4 * now + max(HEADROOM_PROCESSES, int(4 * limits["processes"]))
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


# --- the keeper --------------------------------------------------------------------------------

HEARD = (signal.SIGTERM, signal.SIGQUIT, signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2)


def _wakes() -> int:
    """Open a descriptor that gives a byte, the signal's number, for every signal in HEARD."""
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
    """Close the standard streams: they belong to the command, and their reader waits for their
    end."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    os.close(nothing)


class Keeper:
    """The state of one command and of all that it started."""

    def __init__(self, command: int, parent_pid: int, limits: dict[str, float], wakes: int) -> None:
        self.command = command
        self.parent_pid = parent_pid
        self.limits = limits
        self.wakes = wakes
        self.peak_bytes = 0
        self.exceeded = ""
        self.kill_at = 0.0
        """The time at which stopping processes are killed; 0 while none are."""
        self.longest_look_seconds = limits.get("idle_look_seconds", LONGEST_LOOK_SECONDS)

    def keep(self) -> dict[str, object]:
        """Wait until the command, and all that it started, is over; returns a report.

        It has `status` as of `wait`, `peak_bytes`, `exceeded`, the limit that ended it (`memory`,
        `processes`), and `left`, the number of processes that outlived it in sessions of their own.
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
            wait_seconds = min(2 * wait_seconds, self.longest_look_seconds)
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
        for number in heard:
            if number == signal.SIGUSR1:
                self.longest_look_seconds = LONGEST_LOOK_SECONDS
            elif number == signal.SIGUSR2:
                self.longest_look_seconds = self.limits["idle_look_seconds"]
        if signal.SIGQUIT in heard or (signal.SIGTERM in heard and os.getppid() != self.parent_pid):
            self.kill_at = now
        elif signal.SIGTERM in heard and not self.kill_at:
            self.kill_at = now + self.limits["grace_seconds"]
            for pid in descendants(os.getpid()):
                _signal(pid, signal.SIGTERM)

    def _reap(self) -> None:
        """Reap all ended processes except the command, whose id must stay reserved until the
        end."""
        for pid in children(os.getpid()):
            if pid != self.command:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)

    def _has_ended(self) -> bool:
        how = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.command, how) is not None

    def _others(self) -> list[int]:
        """The processes beside the command, and those that outlived it."""
        return [pid for pid in descendants(os.getpid()) if pid != self.command]

    def _detached(self) -> int:
        """The number of processes that outlived the command in other sessions."""
        count = 0
        for pid in self._others():
            with contextlib.suppress(OSError):
                count += os.getsid(pid) != self.command and not is_over(pid)
        return count

    def _look(self) -> None:
        most_processes = self.limits.get("processes", float("inf"))
        most_bytes = self.limits.get("memory_bytes", float("inf"))
        alive = descendants(os.getpid(), most=most_processes)
        if len(alive) > most_processes:
            self.exceeded = "processes"
            return
        used_bytes = sum(map(memory_of, alive))
        if used_bytes > most_bytes:
            # pages that forked processes share were counted for each of them
            used_bytes = sum(map(share_of_memory, alive))
        self.peak_bytes = max(self.peak_bytes, used_bytes)
        if used_bytes > most_bytes:
            self.exceeded = "memory"

    def _kill_all(self) -> None:
        """Kill them all, faster than they can fork: the kernel kills a whole group at once."""
        until = time.monotonic() + KILL_SECONDS
        while True:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.command, signal.SIGKILL)
            alive = descendants(os.getpid())
            for pid in alive:
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
    """The present descendants of a process; at most a few more than `most`."""
    pids = children(pid)
    for each in pids:  # grows on the way
        if len(pids) > most:
            break
        pids += children(each)
    return pids


def children(pid: int) -> list[int]:
    """The processes that any thread of this one started or adopted."""
    pids: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                pids += map(int, file.read().split())
    except (OSError, ValueError):  # gone meanwhile
        pass
    return pids


def is_over(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"Z", b"X")
    except OSError:
        return True


def memory_of(pid: int) -> int:
    """The resident bytes of a process, without mapped files."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            _, resident, shared, *_ = map(int, file.read().split())
    except (OSError, ValueError):
        return 0
    return (resident - shared) * PAGE_BYTES


def share_of_memory(pid: int) -> int:
    """The same, with only its share of the pages that it shares with others."""
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
