"""Processes of Muster that need not load it: forks of one that has.

A start costs a second of processor time, nearly all of it for imports, and the tests start services
and commands by the thousand. `python -m tests.forked SOCKET` loads once and forks for each call:

    forks = forked.Forks()
    process = forks.start(["manage.py", "executor"], environment=..., output=log)
    process.kill()
    process.wait()

A fork has its own process group, directory, environment, arguments and streams, and reads all
settings from its environment, as nothing that is loaded has read one. `CLIENT` is the text of a
`manage.py` that is such a call.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

REPOSITORY = Path(__file__).resolve().parents[1]

LEFT_OUT = ("workers.notifier.application",)
"""Modules that read settings when they are loaded."""

ROOM_FOR_ARGUMENTS = 500
"""Bytes in which a fork can show its own arguments to who asks the kernel for them."""

STAYS_UP = ("api", "demo", "drill", "executor", "up", "worker")
"""Commands that who calls CLIENT may signal: they run by themselves."""

CLIENT = """\
#!{python} -IS
import json, os, socket, sys
arguments = sys.argv[1:]
if arguments and arguments[0] in {stays_up!r}:
    os.execv({python!r}, [{python!r}, {program!r}, *arguments])
with socket.socket(socket.AF_UNIX) as link:
    link.connect({address!r})
    call = {{
        "arguments": [{program!r}, *arguments],
        "directory": os.getcwd(),
        "environment": dict(os.environ),
        "has_session": False,
    }}
    said = json.dumps(call).encode()
    socket.send_fds(link, [len(said).to_bytes(8, "big")], [0, 1, 2])
    link.sendall(said)
    link.recv(64)  # its pid
    sys.exit(int(link.recv(64) or b"1"))
"""
"""Python's own start takes 10 ms without `site`."""


def client(*, program: str, address: str) -> str:
    """Text of a `manage.py`, to be called as that `program` would be."""
    return CLIENT.format(python=sys.executable, program=program, address=address, stays_up=STAYS_UP)


class Process:
    """A fork, with what `subprocess.Popen` has for a program."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self.pid = int(link.recv(64))
        self.returncode: int | None = None
        """Its exit status, negative for a signal, once somebody has looked and it had ended."""
        self._descriptor: int | None = None
        with contextlib.suppress(ProcessLookupError):
            # its number may be another's as soon as it has ended: whoever started it reaps it
            self._descriptor = os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        return self._look(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        status = self._look(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return status

    def send_signal(self, number: int) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _look(self, seconds: float | None) -> int | None:
        if self.returncode is None:
            self._link.settimeout(seconds)
            with contextlib.suppress(TimeoutError, BlockingIOError):
                # nothing at all if who keeps it was killed together with it
                self.returncode = int(self._link.recv(64) or -signal.SIGKILL)
                self._link.close()
                if self._descriptor is not None:
                    os.close(self._descriptor)
                    self._descriptor = None
        return self.returncode


class Forks:
    """The process that has loaded Muster, and what is started from it. It ends with this one,
    what it started does not."""

    def __init__(self) -> None:
        self._directory = tempfile.mkdtemp(prefix="muster-forks-")
        self.address = f"{self._directory}/socket"
        self.log = Path(self._directory) / "log"
        environment = {
            **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
            "HOME": self._directory,
            "MUSTER_DATA_DIR": self._directory,
        }
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.forked", self.address, "-" * ROOM_FOR_ARGUMENTS],
                cwd=REPOSITORY,
                env=environment,
                stdin=subprocess.PIPE,  # by whose end it notices ours
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def start(
        self,
        arguments: Sequence[str],
        *,
        environment: dict[str, str],
        output: int,
        errors: int | None = None,
        link: socket.socket | None = None,
    ) -> Process:
        """Start `python <arguments>`, which are a program's path or `-m` and a module. It writes
        its errors to its `output`, too, unless told otherwise. The number of the descriptor by
        which it has `link` becomes the last of its arguments."""
        call = {
            "arguments": list(arguments),
            "directory": str(REPOSITORY),
            "environment": environment,
            "has_session": True,
        }
        said = json.dumps(call).encode()
        to_it = self._connected()
        with open(os.devnull, "rb") as nothing:
            streams = [nothing.fileno(), output, output if errors is None else errors]
            passed = [*streams, link.fileno()] if link is not None else streams
            socket.send_fds(to_it, [len(said).to_bytes(8, "big")], passed)
            to_it.sendall(said)
            return Process(to_it)

    def is_ready(self) -> bool:
        """Whether it has loaded Muster; AssertionError if it has ended."""
        assert self._process.poll() is None, self.log.read_text()
        return os.path.exists(self.address)

    def close(self) -> None:
        self._process.communicate()

    def _connected(self) -> socket.socket:
        link = socket.socket(socket.AF_UNIX)
        while True:
            try:
                link.connect(self.address)
            except (FileNotFoundError, ConnectionRefusedError):
                self.is_ready()
                time.sleep(0.02)
            else:
                return link


def matters_at_start(variables: Iterable[str]) -> bool:
    """Whether one of these variables has an effect when a program starts, and none on a fork."""
    names = set(variables) - {"PYTHONUNBUFFERED"}  # a fork heeds it
    return any(
        name.startswith(("FAKETIME", "LD_", "PYTHON")) or name == "DJANGO_SETTINGS_MODULE"
        for name in names
    )


@functools.cache
def shared() -> Forks:
    """Those of this process, for as long as it runs."""
    forks = Forks()
    atexit.register(forks.close)
    return forks


# ---- the process that has loaded Muster ----


def serve(address: str) -> None:
    """Answer calls until who started this has gone. Returns in each fork, which then is what was
    called."""
    _load()
    with socket.socket(socket.AF_UNIX) as listener:
        unready = f"{address}-"
        listener.bind(unready)
        listener.listen(64)
        os.rename(unready, address)
        while True:
            ready, _, _ = select.select([listener, sys.stdin], [], [])
            if sys.stdin in ready:
                shutil.rmtree(os.path.dirname(address))
                os._exit(0)
            link, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                call, descriptors = _received(link)
                pid = os.fork()
                if pid != 0:
                    _keep(pid, link)
                link.close()
                _become(call, descriptors)
                return
            link.close()
            _reap()


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def _load() -> None:
    """Import all that is ours, and with it what that needs."""
    gc.disable()
    os.environ["DJANGO_SETTINGS_MODULE"] = "settings.base"
    import django

    django.setup()
    from django.core.management import get_commands, load_command_class

    for name, app in get_commands().items():
        if str(app).startswith("orchestrator."):
            load_command_class(app, name)
    for name in ("orchestrator", "tasks", "workers"):
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            parts = module.name.split(".")
            if module.name not in LEFT_OUT and not {"migrations", "__main__"}.intersection(parts):
                importlib.import_module(module.name)
    for name in ("celery.__main__", "celery.apps.beat", "celery.apps.worker", "uvicorn"):
        importlib.import_module(name)
    from django.conf import settings

    assert "MUSTER" not in vars(settings), "a module reads settings when it is loaded"
    gc.collect()
    gc.freeze()


def _received(link: socket.socket) -> tuple[dict[str, Any], list[int]]:
    size, descriptors, _, _ = socket.recv_fds(link, 8, 8)
    parts = array.array("B")
    whole = int.from_bytes(size, "big")
    while len(parts) < whole:
        parts.frombytes(link.recv(whole - len(parts)) or sys.exit("the caller has gone"))
    return json.loads(parts.tobytes()), descriptors


def _keep(pid: int, link: socket.socket) -> NoReturn:
    """Tell the caller of the fork, and of its end."""
    os.setsid()  # not ended with the caller's group, as the caller may be
    os.closerange(3, link.fileno())
    os.closerange(link.fileno() + 1, 1024)
    with contextlib.suppress(OSError):
        link.sendall(str(pid).encode())
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(OSError):
        link.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _become(call: dict[str, Any], descriptors: list[int]) -> None:
    """Be a process that was started like this."""
    if call["has_session"]:
        os.setsid()
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(call["directory"])
    os.environ.clear()
    os.environ.update(call["environment"])
    time.tzset()
    tempfile.tempdir = None
    arguments = [*call["arguments"], *map(str, descriptors[3:])]
    for number in descriptors[3:]:
        os.set_inheritable(number, False)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through="PYTHONUNBUFFERED" in os.environ)  # type: ignore[union-attr]
    _show([sys.executable, *arguments])
    _forget_settings()
    sys.argv = arguments


def _show(arguments: list[str]) -> None:
    """Let the kernel tell these arguments, where it would tell those of the loaded process."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begins, ends = int(fields[45]), int(fields[46])
    text = "\0".join(arguments).encode()[: ends - begins - 1]
    ctypes.memmove(begins, text.ljust(ends - begins, b"\0"), ends - begins)


def _forget_settings() -> None:
    """Let Django read its settings when it needs them, from the environment that is there now."""
    from django.conf import settings
    from django.core.cache import caches
    from django.db import connections
    from django.utils.functional import empty

    settings._wrapped = empty  # forgets each that was asked for, too
    for name in ("settings.base", "settings.celery_config"):
        sys.modules.pop(name, None)
    for handler in (connections, caches):
        vars(handler).clear()
        handler.__init__()  # type: ignore[misc]


def main() -> None:
    serve(sys.argv[1])
    program, *rest = sys.argv
    if program == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
