"""What every process of a test run needs, and one of them makes: databases that are migrated."""

from __future__ import annotations

import contextlib
import fcntl
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests import servers

place: Path | None = None
"""The directory that all processes of this run share; None outside of a run of the tests."""


@contextlib.contextmanager
def shared(name: str) -> Iterator[tuple[Path, bool] | None]:
    """A directory of this name, and whether it is full: then what is in it is to be taken, else to
    be put there. Another process that asks meanwhile waits. None where nothing is shared."""
    if place is None:
        yield None
        return
    directory = place / name
    directory.mkdir(exist_ok=True)
    full = directory / "full"
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield directory, full.exists()
        full.touch()


def dump(url: str, path: Path) -> None:
    """Write down a database of PostgreSQL, with the roles that its rights are about."""
    roles = _run("pg_dumpall", "--roles-only", "--dbname", url)
    # the server's own superuser is there already
    ours = [line for line in roles.splitlines() if " postgres" not in line]
    path.write_text("\n".join(ours) + "\n" + _run("pg_dump", "--dbname", url))


def load(url: str, path: Path) -> None:
    """Fill an empty database from such a file."""
    _run("psql", "--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", "-f", str(path), url)


def _run(tool: str, *arguments: str) -> str:
    binary = servers.find(tool, servers.POSTGRES_DIRECTORIES)
    ran = subprocess.run([str(binary), *arguments], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{tool}: {ran.stderr[-2000:]}"
    return ran.stdout
