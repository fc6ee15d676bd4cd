"""Actions that a pack's Python modules define: decorated functions, and Celery tasks.

Importing a module runs its code, so a process of its own does that (`muster_client.describing`):
with an environment that has nothing of ours, as the user of actions if there is one, for at most a
minute of processor time. What it answers is foreign data, and is checked as a YAML file is.

A pack with a `requirements.txt` is imported with the interpreter of its own environment, as its
actions will be: what it does not name cannot be imported.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import pwd
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.conf import settings

from orchestrator.core import isolation
from orchestrator.core.packs import environments, source
from orchestrator.core.packs.runtimes import REQUIREMENTS
from orchestrator.core.packs.source import Source, SourceProblem

PACKAGE = "muster_client"
MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
TIMEOUT_SECONDS = 90.0
LONGEST_ANSWER_BYTES = 8 * 1_048_576
LARGEST_MODULE_BYTES = 1_048_576
SHOWN_CHARACTERS = 500

MAKING_SECONDS = 600.0
"""To make the environment of a pack, on a machine that has to download its packages."""

IN_OURS = "import sys; sys.path[:] = sys.argv.pop(1).split(':'); "
IN_ITS_OWN = (
    "import sys; ours = sys.argv.pop(1).split(':'); sys.path += sys.argv.pop(1).split(':'); "
    f"from {PACKAGE} import borrowing; borrowing.borrow(ours); "
)
START = f"from {PACKAGE} import describing; describing.main()"


@dataclass
class Imported:
    """The actions of modules, each as if it were a file of its own, and what to say about them."""

    actions: list[Source] = field(default_factory=list)
    problems: list[SourceProblem] = field(default_factory=list)
    notes: list[SourceProblem] = field(default_factory=list)


def read(folder: Path, pack: Source) -> Imported:
    """Read the decorated actions of a pack's folder, and the tasks of the modules that
    `celery_tasks` names."""
    found = Imported()
    tasks = [name for name in _listed(pack) if isinstance(name, str) and MODULE.fullmatch(name)]
    decorated = list(_decorated(folder, found.problems))
    if not tasks and not decorated:
        return found
    name = pack.value.get("name") if isinstance(pack.value, dict) else None
    request = {"decorated": decorated, "celery_tasks": tasks, "pack": str(name)}
    try:
        answer = _ask(request, folder)
    except environments.CannotMake as error:
        file = str(folder / REQUIREMENTS)
        found.problems.append(SourceProblem(file, 0, 0, f"its environment: {error}"))
        return found
    except _NoAnswer as error:
        modules = ", ".join([*(module for module, _ in decorated), *tasks])
        found.problems.append(SourceProblem(str(pack.file), 0, 0, f"{modules}: {error}"))
        return found
    _take(answer, found, pack)
    return found


def is_needed(folder: Path) -> bool:
    """Return True if the pack has actions that only an import can find."""
    file = source.read(folder / "pack.yaml", folder=folder)
    return bool(_listed(file)) or any(_decorated(folder, []))


def is_list_of_modules(value: Any) -> bool:
    """Return True for a list of modules, each inside a package."""
    return isinstance(value, list) and all(
        isinstance(name, str) and MODULE.fullmatch(name) for name in value
    )


def _listed(pack: Source) -> list[Any]:
    listed = pack.at(("celery_tasks",), [])
    return listed if isinstance(listed, list) else []


# --- which modules -------------------------------------------------------------------------------


def _decorated(folder: Path, problems: list[SourceProblem]) -> Iterator[tuple[str, str]]:
    """The modules of the folder that decorate something, each with its file. Nothing is imported
    to find them."""
    root = Path(os.path.abspath(folder))
    for file in sorted(root.rglob("*.py")):
        parts = file.relative_to(root.parent).with_suffix("").parts
        if not _uses_decorator(file):
            continue
        if not all(part.isidentifier() for part in parts):
            message = f"expected names that Python can import, found {'/'.join(parts)}"
            problems.append(SourceProblem(str(file), 0, 0, message))
            continue
        yield ".".join(parts).removesuffix(".__init__"), str(file)


def _uses_decorator(file: Path) -> bool:
    try:
        if not file.is_file() or file.stat().st_size > LARGEST_MODULE_BYTES:
            return False
        written = file.read_bytes()
        module = ast.parse(written) if PACKAGE.encode() in written else ast.Module([], [])
    except (OSError, SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return any(_imports_decorator(statement) for statement in ast.walk(module))


def _imports_decorator(statement: ast.AST) -> bool:
    match statement:
        case ast.ImportFrom(module=module, names=names) if module in (PACKAGE, f"{PACKAGE}.action"):
            return any(alias.name == "action" for alias in names)
        case ast.Import(names=names):
            return any(alias.name.partition(".")[0] == PACKAGE for alias in names)
    return False


# --- the process ---------------------------------------------------------------------------------


class _NoAnswer(Exception):
    """The process gave no answer."""


def _ask(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Have a process describe modules. Raises _NoAnswer and CannotMake."""
    user = _user()
    argv = _argv(folder, user)
    with (
        tempfile.TemporaryDirectory(prefix="muster-import-") as home,
        tempfile.TemporaryFile() as answer,
        tempfile.TemporaryFile() as output,
    ):
        if user is not None:
            os.chown(home, user.pw_uid, user.pw_gid)
        process = _started(
            argv,
            stdin=subprocess.PIPE,
            stdout=answer,
            stderr=output,
            cwd=home,
            env={"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", "HOME": home},
            start_new_session=True,
            **isolation.as_user(user),
        )
        try:
            process.communicate(json.dumps(request).encode(), TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            raise _NoAnswer(f"the import did not end within {TIMEOUT_SECONDS:g} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        answer.seek(0)
        output.seek(0)
        return _read(answer.read(LONGEST_ANSWER_BYTES), output.read(), process.returncode)


def _started(argv: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process. Raises _NoAnswer, such as for a user who cannot execute Python."""
    try:
        return subprocess.Popen(argv, **options)
    except (OSError, subprocess.SubprocessError) as error:
        raise _NoAnswer(f"the process that imports cannot be started: {error}") from None


def _read(answer: bytes, output: bytes, status: int) -> dict[str, Any]:
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(answer)
        if isinstance(value, dict):
            return value
    said = output.decode("utf-8", "replace").strip()[-SHOWN_CHARACTERS:]
    raise _NoAnswer(f"the import ended with exit code {status}: {said}")


def _argv(folder: Path, user: pwd.struct_passwd | None) -> list[str]:
    """The interpreter that imports, and where it looks for modules, as the worker's does: last in
    the parent of the folder. Raises CannotMake."""
    root = str(settings.BASE_DIR)
    parent = os.path.dirname(os.path.abspath(folder))
    ours = [root, *(entry or root for entry in sys.path)]
    if not (folder / REQUIREMENTS).is_file():
        path = os.pathsep.join(dict.fromkeys([*ours, parent]))
        return [sys.executable, "-I", "-c", IN_OURS + START, path]
    python = environments.python_of(
        folder,
        directory=environments.directory(user),
        timeout_seconds=MAKING_SECONDS,
        user=user,
    )
    own = os.pathsep.join([parent, root])
    return [python, "-I", "-c", IN_ITS_OWN + START, os.pathsep.join(ours), own]


def _user() -> pwd.struct_passwd | None:
    """The user of actions, if this process may become that user. Raises _NoAnswer for one that no
    action may have."""
    if os.geteuid() != 0:
        return None
    if settings.MUSTER.action_user and (why := isolation.why_not(isolation.USER)):
        raise _NoAnswer(why)
    return isolation.user()


# --- its answer ----------------------------------------------------------------------------------


def _take(answer: dict[str, Any], found: Imported, pack: Source) -> None:
    """Read an answer; an entry in it that has another form is left out."""
    for entry in _entries(answer, "actions"):
        if isinstance(entry.get("values"), dict):
            place = _place(entry, pack)
            found.actions.append(Source.at_line(Path(place[0]), place[1], entry["values"]))
    for name, into in (("problems", found.problems), ("notes", found.notes)):
        for entry in _entries(answer, name):
            file, line = _place(entry, pack)
            message = str(entry.get("message"))
            into.append(SourceProblem(file, line, int(line > 0), message))


def _entries(answer: dict[str, Any], name: str) -> Iterator[dict[str, Any]]:
    entries = answer.get(name)
    if isinstance(entries, list):
        yield from (each for each in entries if isinstance(each, dict))


def _place(entry: dict[str, Any], pack: Source) -> tuple[str, int]:
    line = entry.get("line")
    return str(entry.get("file") or pack.file), line if isinstance(line, int) else 0
