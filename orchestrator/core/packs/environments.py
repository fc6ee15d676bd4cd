"""A Python environment for each pack that has a `requirements.txt`, made once on each host.

It is in the data directory, or in `MUSTER_ENVIRONMENTS_DIR`, under a name that depends on its
inputs: another `requirements.txt`, or another interpreter, gives another environment. One that was
not finished is made again. Old ones may be deleted whenever no action uses them.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from django.conf import settings

from orchestrator.core import isolation, private_files
from orchestrator.core.errors import MusterError
from orchestrator.core.packs.runtimes import REQUIREMENTS

COMPLETE = "complete"
"""A file that marks a finished environment."""
POLL_SECONDS = 0.1
SHOWN_CHARACTERS = 2_000

PASSED_ON = (
    "PATH",
    "HOME",
    "LANG",
    "TMPDIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
)
PASSED_ON_ENDINGS = ("_proxy", "_PROXY")
"""Variables of our environment that pip gets, besides its own `PIP_*`: it may run foreign code,
which must not see our passwords."""


class CannotMake(MusterError):
    """The pack's Python environment could not be made."""


def python_of(
    pack_path: Path,
    *,
    interpreter: str = "",
    directory: Path | None,
    timeout_seconds: float,
    environment: Mapping[str, str] | None = None,
    user: pwd.struct_passwd | None = None,
) -> str:
    """Return the interpreter for the Python actions of a pack that run in processes of their own.

    `interpreter` is a name on PATH or a path; empty means the one that runs this. The environment
    is made in the directory if there is none yet, or waited for if another process makes it.
    `environment` is added to that of pip. What pip installs may run code of its own: it does so as
    `user`, who cannot change the environment once it is complete. Raises CannotMake.
    """
    base = shutil.which(interpreter) if interpreter else sys.executable
    if base is None:
        raise CannotMake(f"There is no interpreter {interpreter!r} on PATH.")
    requirements = pack_path / REQUIREMENTS
    if not requirements.is_file():
        return base
    if directory is None:
        raise CannotMake(
            "MUSTER_ENVIRONMENTS_DIR is not set, and the user of actions cannot reach the data "
            "directory."
        )
    folder = directory.resolve() / _name_of(pack_path, requirements, base)
    python = folder / "bin" / "python"
    if not (folder / COMPLETE).exists():
        until = time.monotonic() + timeout_seconds
        if user is None:
            private_files.make_directory(folder.parent)
        elif not folder.parent.exists():
            folder.parent.mkdir(parents=True)
            folder.parent.chmod(0o755)
        with _locked(folder.with_name(f"{folder.name}.lock"), until) as lock:
            if not (folder / COMPLETE).exists():
                _make(folder, base, requirements, _Builder(until, lock, environment or {}, user))
    return str(python)


def directory(user: pwd.struct_passwd | None) -> Path | None:
    """Where environments are made; None where actions have a user who cannot reach it."""
    if stated := settings.MUSTER.environments_dir:
        return Path(stated)
    return None if user else Path(settings.DATA_DIR) / "environments"


def _name_of(pack_path: Path, requirements: Path, base: str) -> str:
    made_of = hashlib.sha256(requirements.read_bytes())
    real = Path(base).resolve()
    # an interpreter that was upgraded in place is another interpreter
    made_of.update(f"\0{base}\0{real}\0{real.stat().st_mtime_ns}".encode())
    return f"{pack_path.resolve().name}-{made_of.hexdigest()[:16]}"


class _Builder(NamedTuple):
    """How the commands that make an environment run."""

    until: float
    lock: int
    environment: Mapping[str, str]
    user: pwd.struct_passwd | None


def _make(folder: Path, base: str, requirements: Path, builder: _Builder) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if builder.user is not None:
        folder.chmod(0o755)
        os.chown(folder, builder.user.pw_uid, builder.user.pw_gid)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--no-input"]
    for argv in (
        [base, "-m", "venv", str(folder)],
        [*pip, "--disable-pip-version-check", "--requirement", str(requirements.resolve())],
    ):
        _run(argv, requirements.parent, builder)
    if builder.user is not None:
        _own(folder)
    private_files.make(folder / COMPLETE)


def _own(folder: Path) -> None:
    """Take a folder and all that is in it: links are not followed, and the kernel drops set-user-id
    bits."""
    for _, folders, files, opened in os.fwalk(folder):
        for name in (".", *folders, *files):
            os.chown(name, os.getuid(), os.getgid(), dir_fd=opened, follow_symlinks=False)


def _run(argv: list[str], folder: Path, builder: _Builder) -> None:
    """Run a command, which inherits the lock: if we are killed, it is held as long as the command
    runs."""
    until, user = builder.until, builder.user
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            argv,
            cwd=folder,
            env=_environment(user) | dict(builder.environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=[builder.lock],
            umask=private_files.OTHERS if user is None else 0o022,
            **isolation.as_user(user),
        )
        try:
            status = process.wait(max(until - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            raise CannotMake(f"{_name(argv)} did not end within the action's time limit.") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if status != 0:
            end = output.seek(0, os.SEEK_END)
            output.seek(max(end - SHOWN_CHARACTERS, 0))
            tail = output.read().decode("utf-8", "replace").strip()
            raise CannotMake(f"{_name(argv)} ended with exit code {status}: {tail}")


def _name(argv: list[str]) -> str:
    """`pip install` or `venv`."""
    return f"{argv[2]} install" if argv[2] == "pip" else argv[2]


def _environment(user: pwd.struct_passwd | None = None) -> dict[str, str]:
    home = {"HOME": user.pw_dir} if user is not None else {}
    return {
        name: value
        for name, value in os.environ.items()
        if name in PASSED_ON or name.startswith("PIP_") or name.endswith(PASSED_ON_ENDINGS)
    } | home


@contextlib.contextmanager
def _locked(path: Path, until: float) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, private_files.FILE)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise CannotMake(
                        "Another process makes it, and was not done within the time limit."
                    ) from None
                time.sleep(POLL_SECONDS)
        yield descriptor
    finally:
        os.close(descriptor)
