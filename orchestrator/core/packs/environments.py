"""A Python environment for each pack that has a `requirements.txt`, made once on each host.

It lives below the data directory, under a name that says what it was made of: another
`requirements.txt`, or another interpreter, is another environment. One that was not finished is
made again. Old ones may be deleted at any time that no action uses them.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from orchestrator.core.errors import MusterError
from orchestrator.core.packs.runtimes import REQUIREMENTS

COMPLETE = "complete"
"""A file in an environment that was made to its end."""
POLL_SECONDS = 0.1
TOLD_CHARACTERS = 2_000

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
"""What pip gets of our environment, besides its own `PIP_*`: the code that it may run is not ours,
and has no business with our passwords."""


class CannotMake(MusterError):
    """The pack's Python environment could not be made."""


def python_of(
    pack_path: Path,
    *,
    interpreter: str = "",
    data_dir: Path,
    timeout_seconds: float,
    environment: Mapping[str, str] | None = None,
) -> str:
    """The interpreter for the Python actions of a pack that run in processes of their own.

    `interpreter` is a name on PATH or a path; empty is the one that runs this. The environment is
    made if there is none yet, or waited for if somebody else makes it. `environment` is added to
    that of pip. Raises CannotMake.
    """
    base = shutil.which(interpreter) if interpreter else sys.executable
    if base is None:
        raise CannotMake(f"There is no interpreter {interpreter!r} on PATH.")
    requirements = pack_path / REQUIREMENTS
    if not requirements.is_file():
        return base
    folder = _folder(pack_path, requirements, base, data_dir)
    python = folder / "bin" / "python"
    if not (folder / COMPLETE).exists():
        until = time.monotonic() + timeout_seconds
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.with_name(f"{folder.name}.lock"), until) as lock:
            if not (folder / COMPLETE).exists():
                _make(folder, base, requirements, until, lock, environment or {})
    return str(python)


def _folder(pack_path: Path, requirements: Path, base: str, data_dir: Path) -> Path:
    made_of = hashlib.sha256(requirements.read_bytes())
    real = Path(base).resolve()
    # an upgrade of the interpreter in its place is another interpreter
    made_of.update(f"\0{base}\0{real}\0{real.stat().st_mtime_ns}".encode())
    name = f"{pack_path.resolve().name}-{made_of.hexdigest()[:16]}"
    return data_dir.resolve() / "environments" / name


def _make(
    folder: Path,
    base: str,
    requirements: Path,
    until: float,
    lock: int,
    environment: Mapping[str, str],
) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--no-input"]
    for argv in (
        [base, "-m", "venv", str(folder)],
        [*pip, "--disable-pip-version-check", "--requirement", str(requirements.resolve())],
    ):
        _run(argv, requirements.parent, until, lock, environment)
    (folder / COMPLETE).touch()


def _run(
    argv: list[str], folder: Path, until: float, lock: int, environment: Mapping[str, str]
) -> None:
    """The lock is passed on: should we be killed, it is held for as long as the command writes."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            argv,
            cwd=folder,
            env=_environment() | dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=[lock],
        )
        try:
            status = process.wait(max(until - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            raise CannotMake(f"{_told(argv)} did not end within the action's time limit.") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if status != 0:
            end = output.seek(0, os.SEEK_END)
            output.seek(max(end - TOLD_CHARACTERS, 0))
            said = output.read().decode("utf-8", "replace").strip()
            raise CannotMake(f"{_told(argv)} ended with exit code {status}: {said}")


def _told(argv: list[str]) -> str:
    """`pip install` or `venv`."""
    return f"{argv[2]} install" if argv[2] == "pip" else argv[2]


def _environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name in PASSED_ON or name.startswith("PIP_") or name.endswith(PASSED_ON_ENDINGS)
    }


@contextlib.contextmanager
def _locked(path: Path, until: float) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
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
