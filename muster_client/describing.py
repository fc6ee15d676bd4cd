"""The process that imports modules of a pack, and describes the actions in them.

It gets on standard input which modules, and answers on standard output, both in JSON. What the
modules print goes to standard error. It is started by `orchestrator.core.packs.imported`, without
credentials, as importing a module runs its code.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import resource
import sys
import traceback
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from muster_client import celery_options, celery_tasks
from muster_client.action import MARK
from muster_client.schemas import Parameters

LARGEST_FILE_BYTES = 64 * 1_048_576
CPU_SECONDS = 60
FROM_THE_FUNCTION = ("runtime", "entry_point", "parameters")


class Description:
    """All that was found: actions, problems and notes, each with its file and line."""

    def __init__(self) -> None:
        self.actions: list[dict[str, Any]] = []
        self.problems: list[dict[str, Any]] = []
        self.notes: list[dict[str, Any]] = []

    def decorated(self, module: ModuleType) -> None:
        """Describe the decorated functions of a module."""
        for name, function in _own(module):
            if not hasattr(function, MARK):
                continue
            stated = dict(getattr(function, MARK))
            place = _place(function, module)
            for key in FROM_THE_FUNCTION:
                if key in stated:
                    self._problem(place, name, f"{key}: expected none: the function says it")
            if inspect.iscoroutinefunction(function):
                self._problem(place, name, "expected a function, found a coroutine")
                continue
            if parameters := self._parameters(place, name, function):
                for untyped in parameters.untyped():
                    self._problem(place, name, f"{untyped}: expected a type hint, found none")
                self._add(place, name, module, function, parameters, stated)

    def tasks(self, module: ModuleType, pack: str) -> None:
        """Describe the Celery tasks of a module."""
        found = False
        for name, task in _own(module):
            if not celery_tasks.is_task(task):
                continue
            found = True
            function = celery_tasks.signed(task)
            place = _place(function, module)
            options = celery_options.mapped(task)
            for problem in options.problems:
                self._problem(place, name, problem)
            for note in options.notes:
                self.notes.append({**place, "message": f"{name}: {note}"})
            is_bound = celery_tasks.is_bound(task)
            if parameters := self._parameters(place, name, function, is_bound=is_bound):
                for untyped in parameters.untyped():
                    message = f"{name}: {untyped}: has no type hint, so any value is accepted"
                    self.notes.append({**place, "message": message})
                keys = {"name": _short(task.name, module, pack), **options.keys}
                self._add(place, name, module, function, parameters, keys)
        if not found:
            self.problems.append(
                {"file": module.__file__, "line": 1, "message": "expected Celery tasks, found none"}
            )

    def _parameters(
        self, place: dict[str, Any], name: str, function: Any, *, is_bound: bool = False
    ) -> Parameters | None:
        try:
            return Parameters(function, is_bound=is_bound)
        except (NameError, TypeError, AttributeError) as error:
            self._problem(place, name, f"its type hints cannot be read: {error}")
            return None

    def _add(
        self,
        place: dict[str, Any],
        name: str,
        module: ModuleType,
        function: Any,
        parameters: Parameters,
        stated: dict[str, Any],
    ) -> None:
        problems = list(parameters.problems())
        for problem in problems:
            self._problem(place, name, problem)
        if problems:
            return
        values = {
            "name": name,
            "description": _first_paragraph(function),
            "runtime": "python",
            "entry_point": f"{module.__name__}:{name}",
            "parameters": parameters.schema(),
        }
        self.actions.append({**place, "values": values | stated})

    def _problem(self, place: dict[str, Any], function: str, message: str) -> None:
        self.problems.append({**place, "message": f"{function}: {message}"})


def _own(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The names and values that the module defines itself, in order."""
    for name, value in list(vars(module).items()):
        if getattr(value, "__module__", None) == module.__name__:
            yield name, value


def _place(function: Any, module: ModuleType) -> dict[str, Any]:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return {"file": module.__file__, "line": code.co_firstlineno if code else 0}


def _first_paragraph(function: Any) -> str:
    paragraph = (inspect.getdoc(function) or "").split("\n\n")[0]
    return " ".join(paragraph.split())


def _short(name: str, module: ModuleType, pack: str) -> str:
    """A task's name without that of its module, or of the pack."""
    for prefix in (f"{module.__name__}.", f"{pack}."):
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name


def _imported(name: str, file: str | None, description: Description) -> ModuleType | None:
    """Import a module; a failure is a problem of its file, or of the module if there is none."""
    try:
        module = importlib.import_module(name)
    except BaseException as error:  # noqa: BLE001 - whatever an import raises is its problem
        message = "".join(traceback.format_exception_only(error)).strip()
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
        line = frames[-1].lineno if frames else 0
        message = f"the module {name} cannot be imported: {message}"
        description.problems.append({"file": file or "", "line": line, "message": message})
        return None
    if file is not None and os.path.realpath(module.__file__ or "") != os.path.realpath(file):
        message = f"the module {name} is another file, {module.__file__}: rename the folder"
        description.problems.append({"file": file, "line": 0, "message": message})
        return None
    return module


def describe(request: dict[str, Any]) -> Description:
    description = Description()
    for name, file in request["decorated"]:
        if module := _imported(name, file, description):
            description.decorated(module)
    for name in request["celery_tasks"]:
        if module := _imported(name, None, description):
            description.tasks(module, request["pack"])
    return description


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE_BYTES, LARGEST_FILE_BYTES))
    request, answers = json.load(sys.stdin), os.dup(1)
    os.dup2(2, 1)
    written = json.dumps(vars(describe(request)), default=repr)
    with open(answers, "w") as file:
        file.write(written)
