"""`manage.py`, a fork of a process that has loaded it already.

The pages have some hundred commands, and each would spend half a second of processor time on its
imports. `python -m tests.docs.warm SOCKET` loads once and forks for each call; `CLIENT` hands over
its streams, arguments, directory and environment, and exits as the command did. What stays up, or
has settings of its own, runs by itself.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import socket
import sys
from typing import NoReturn

STAYS_UP = ("api", "demo", "drill", "executor", "up", "worker")

CLIENT = """\
#!{python} -IS
import json, os, socket, sys
arguments = sys.argv[1:]
settings = {{key: text for key, text in os.environ.items() if key.startswith({prefixes!r})}}
if settings != {settings!r} or (arguments and arguments[0] in {stays_up!r}):
    os.execv({python!r}, [{python!r}, {program!r}, *arguments])
with socket.socket(socket.AF_UNIX) as link:
    link.connect({address!r})
    said = json.dumps([arguments, os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(link, [len(said).to_bytes(8, "big")], [0, 1, 2])
    link.sendall(said)
    status = int(link.recv(4) or b"1")
    link.recv(1)  # until it is gone, with all that it does at its exit
    sys.exit(status)
"""
"""The program that the pages call. Python's own start takes 10 ms without `site`."""

PREFIXES = ("MUSTER_", "DATABASE_URL", "BROKER_URL", "DJANGO_")


def client(*, program: str, address: str, settings: dict[str, str]) -> str:
    """Text of a `manage.py` for who has these environment variables."""
    return CLIENT.format(
        python=sys.executable,
        program=program,
        address=address,
        prefixes=PREFIXES,
        stays_up=STAYS_UP,
        settings={key: text for key, text in settings.items() if key.startswith(PREFIXES)},
    )


def serve(address: str) -> NoReturn:
    """Answer calls until the process is ended."""
    _load()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(8)
        while True:
            link, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _answer(link)
            link.close()
            _reap()


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def _load() -> None:
    """Whatever commands need: Django, the commands, and what they import when they run."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings.base")
    import django

    django.setup()
    from django.core.management import get_commands, load_command_class

    for name, app in get_commands().items():
        if str(app).startswith("orchestrator."):
            load_command_class(app, name)
    from django.db import connections

    connections.close_all()


def _answer(link: socket.socket) -> NoReturn:
    """Become the command that was called."""
    size, descriptors, _, _ = socket.recv_fds(link, 8, 3)
    arguments, directory, environment = json.loads(_read(link, int.from_bytes(size, "big")))
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    status = _run(arguments)
    sys.stdout.flush()
    link.sendall(str(status).encode())
    sys.exit(status)


def _run(arguments: list[str]) -> int:
    """Run the command; its exit status. Another exception ends the process, as it should."""
    from orchestrator.core.management import program

    sys.argv = ["manage.py", *arguments]
    try:
        program.run(sys.argv)
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
            return 1
        return end.code or 0
    return 0


def _read(link: socket.socket, size: int) -> bytes:
    parts = array.array("B")
    while len(parts) < size:
        parts.frombytes(link.recv(size - len(parts)) or sys.exit("the caller has gone"))
    return parts.tobytes()


if __name__ == "__main__":
    serve(sys.argv[1])
