"""A Python environment for packs that have a `requirements.txt`, made once on each host, and shared
by those with equal ones.

It is in the data directory, or in `MUSTER_ENVIRONMENTS_DIR`, under a name that depends on its
inputs: another `requirements.txt`, or another interpreter, gives another environment. One that was
not finished is made again. Old ones may be deleted whenever no action uses them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from django.conf import settings

from orchestrator.core import isolation, private_files
from orchestrator.core.errors import MusterError
from orchestrator.core.packs import file_locks
from orchestrator.core.packs.runtimes import REQUIREMENTS

COMPLETE = "complete"
"""A file that marks a finished environment."""
COPY = "pack"
"""A copy of the pack's folder in its environment, in which pip may build what is in the folder."""
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
        with contextlib.ExitStack() as stack:
            held = file_locks.held(folder.with_name(f"{folder.name}.lock"), until=until)
            try:
                lock = stack.enter_context(held)
            except file_locks.Taken:
                raise CannotMake(
                    "Another process makes it, and was not done within the time limit."
                ) from None
            if not (folder / COMPLETE).exists():
                _make(folder, base, requirements, _Builder(until, lock, environment or {}, user))
    return str(python)


def directory(user: pwd.struct_passwd | None) -> Path | None:
    """The folder where environments are made; None where actions have a user who cannot reach
    it."""
    if stated := settings.MUSTER.environments_dir:
        return Path(stated)
    return None if user else Path(settings.DATA_DIR) / "environments"


def _name_of(pack_path: Path, requirements: Path, base: str) -> str:
    made_of = hashlib.sha256(requirements.read_bytes())
    real = Path(base).resolve()
    # an interpreter that was upgraded in place is another interpreter
    made_of.update(f"\0{base}\0{real}\0{real.stat().st_mtime_ns}".encode())
    if _reads_other_files(requirements):
        made_of.update(str(pack_path.resolve()).encode())
    return made_of.hexdigest()[:24]


def _reads_other_files(requirements: Path) -> bool:
    """Return True if requirements name files of their folder: then those of another folder are
    others, though they read the same."""
    lines = (line.strip() for line in requirements.read_text(errors="replace").splitlines())
    return any(line[:1] in ("-", ".") or "/" in line or " @ " in line for line in lines)


class _Builder(NamedTuple):
    """The conditions under which the commands that make an environment run."""

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
    requirements = _where_it_may_build(requirements, folder, builder)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--no-input"]
    for argv in (
        [base, "-m", "venv", str(folder)],
        [*pip, "--disable-pip-version-check", "--requirement", str(requirements.resolve())],
    ):
        _run(argv, requirements.parent, builder)
    if builder.user is not None:
        _own(folder, os.getuid(), os.getgid())
    private_files.make(folder / COMPLETE)


def _where_it_may_build(requirements: Path, folder: Path, builder: _Builder) -> Path:
    """The requirements, or a copy of them: to build what is in the folder of a release, pip would
    write there, as root whatever the modes say, and the release would be another."""
    pack = requirements.parent
    is_release = not pack.stat().st_mode & stat.S_IWUSR
    if not _reads_other_files(requirements) or not (is_release or builder.user):
        return requirements
    copy = folder / COPY
    shutil.copytree(pack, copy, symlinks=True)
    for parent, folders, files in os.walk(copy):
        for name in (".", *folders, *files):
            path = os.path.join(parent, name)
            if not os.path.islink(path):
                os.chmod(path, stat.S_IMODE(os.stat(path).st_mode) | stat.S_IWUSR)
    if builder.user is not None:
        _own(copy, builder.user.pw_uid, builder.user.pw_gid)
    return copy / requirements.name


def _own(folder: Path, user: int, group: int) -> None:
    """Give a folder and all that is in it to a user: links are not followed, and the kernel drops
    set-user-id bits."""
    for _, folders, files, opened in os.fwalk(folder):
        for name in (".", *folders, *files):
            os.chown(name, user, group, dir_fd=opened, follow_symlinks=False)


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
