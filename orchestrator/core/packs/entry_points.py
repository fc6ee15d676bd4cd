"""Entry points, as far as they can be checked without running anything."""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from orchestrator.core import placeholders

PYTHON = re.compile(r"(?P<module>[A-Za-z_]\w*(\.[A-Za-z_]\w*)+):(?P<function>[A-Za-z_]\w*)")

URL = re.compile(r"https?://.|\{[A-Za-z_]\w*\}", re.IGNORECASE)

LARGEST_MODULE_BYTES = 4_194_304
"""Largest module that is parsed for its functions."""

Finding = tuple[tuple[int, ...], str]
"""The place in the entry point, and the problem."""


def problems(
    runtime: str, entry_point: Any, *, folder: Path, schema: Any, kind: str = "function"
) -> Iterator[Finding]:
    """Find the problems with the entry point of an action of a built-in runtime. `kind`: what is
    expected in a Python module."""
    match runtime:
        case "python":
            yield from python_problems(entry_point, folder=folder, kind=kind)
        case "http":
            yield from http_problems(entry_point, schema=schema)
        case _:
            yield from shell_problems(entry_point, schema=schema)
            if isinstance(entry_point, list) and entry_point:
                if runtime == "node":
                    yield from _script_problems(entry_point[0], folder)
                elif runtime == "shell":
                    yield from _command_problems(entry_point[0], folder)


def http_problems(entry_point: Any, *, schema: Any) -> Iterator[Finding]:
    """Check a URL, which may contain parameters, or be a parameter as a whole."""
    if not isinstance(entry_point, str) or not URL.match(entry_point):
        yield (), f"expected a URL that begins with http:// or https://, found {entry_point!r}"
        return
    properties, required = _declared(schema)
    for name in placeholders.names(entry_point):
        for message in _placeholder_problems(entry_point, name, properties, required, lists=False):
            yield (), message


def template_problems(item: str, *, schema: Any) -> Iterator[str]:
    """Find the problems with a text of an HTTP action, other than its URL. A text that is only a
    placeholder becomes that parameter, and is left out if the parameter is not given."""
    properties, required = _declared(schema)
    for name in placeholders.names(item):
        if placeholders.whole(item) is None or name not in properties:
            yield from _placeholder_problems(item, name, properties, required, lists=False)


def _script_problems(script: Any, folder: Path) -> Iterator[Finding]:
    if isinstance(script, str) and not placeholders.names(script):
        file = folder / script
        if not file.resolve().is_relative_to(folder.resolve()) or not file.is_file():
            yield (0,), f"expected a script in the pack's folder, found no {script!r}"


def _command_problems(command: Any, folder: Path) -> Iterator[Finding]:
    """Check that a relative path stays in the pack. An absolute one names a program of the host."""
    if not isinstance(command, str) or "/" not in command or command.startswith("/"):
        return
    if placeholders.names(command):
        yield (0,), f"expected a name or a path without parameters, found {command!r:.80}"
    elif not (folder / command).resolve().is_relative_to(folder.resolve()):
        yield (
            (0,),
            "expected a path in the pack's folder, or one that begins with /, "
            f"found {command!r:.80}",
        )


def python_problems(entry_point: Any, *, folder: Path, kind: str = "function") -> Iterator[Finding]:
    """Check a Python entry point. A module inside the pack is parsed, not imported; its own imports
    are checked by the workers."""
    match = PYTHON.fullmatch(entry_point) if isinstance(entry_point, str) else None
    if match is None:
        yield (), f"expected package.module:{kind}, found {entry_point!r}"
        return
    folder = folder.resolve()
    for base in _inside(match["module"], folder):
        files = [base.with_suffix(".py"), base / "__init__.py"]
        file = next((file for file in files if file.is_file()), None)
        if file is None:
            yield (), f"expected the module in {files[0].relative_to(folder)}, found no such file"
        elif message := _missing(match["function"], file, kind):
            yield (), f"{file.relative_to(folder)}: {message}"
        return


def missing(runtime: str, entry_point: Any, *, folder: Path) -> str:
    """The file or function of an action that its pack's folder lacks on this host, as text; empty
    if nothing is missing, as far as can be seen without running anything. `folder` is absolute, and
    exists."""
    if runtime == "python":
        return _missing_function(entry_point, folder)
    script = entry_point[0] if isinstance(entry_point, list) and entry_point else None
    if not isinstance(script, str) or placeholders.names(script):
        return ""
    is_in_pack = runtime == "node" or (runtime == "shell" and "/" in script)
    file = folder / script
    if not is_in_pack or not file.is_relative_to(folder) or file.exists():
        return ""
    return f"no such file: {file}"


def _missing_function(entry_point: Any, folder: Path) -> str:
    match = PYTHON.fullmatch(entry_point) if isinstance(entry_point, str) else None
    bases = list(_inside(match["module"], folder)) if match else []
    files = [file for base in bases for file in (base.with_suffix(".py"), base / "__init__.py")]
    if match is None or not files:
        return ""
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        return f"no such file: {files[0]}"
    try:
        module = _parsed(file, file.stat().st_mtime_ns)
    except (OSError, SyntaxError, ValueError, MemoryError, RecursionError):
        return ""  # it exists; running it will show what is wrong with it
    function = match["function"]
    return "" if _definition(function, module) else f"{file} has no function {function!r}"


def shell_problems(entry_point: Any, *, schema: Any) -> Iterator[Finding]:
    if not isinstance(entry_point, list) or not entry_point:
        yield (), f"expected a list of arguments, the command first, found {entry_point!r}"
        return
    properties, required = _declared(schema)
    for index, item in enumerate(entry_point):
        if not isinstance(item, str):
            yield (index,), f"expected text, found {item!r}: put it in quotes"
            continue
        for name in placeholders.names(item):
            for message in _placeholder_problems(item, name, properties, required):
                yield (index,), message


def _declared(schema: Any) -> tuple[Mapping[str, Any], list[Any]]:
    """The properties that a schema of parameters declares, and the required ones."""
    if not isinstance(schema, Mapping):
        return {}, []
    properties, required = schema.get("properties"), schema.get("required")
    return (
        properties if isinstance(properties, Mapping) else {},
        required if isinstance(required, list) else [],
    )


def _placeholder_problems(
    item: str,
    name: str,
    properties: Mapping[str, Any],
    required: list[Any],
    *,
    lists: bool = True,
) -> Iterator[str]:
    """`lists`: True if a list may stand here, as several arguments."""
    if name not in properties:
        known = ", ".join(properties) or "none"
        yield (
            f"{{{name}}}: expected one of the parameters ({known}), found {name!r}; "
            f"for the text itself write {{{{{name}}}}}"
        )
        return
    if name not in required:
        yield f"{{{name}}}: an argument needs {name!r}, so it must be in `required`"
    schema = properties[name] if isinstance(properties[name], Mapping) else {}
    if schema.get("type") != "array":
        return
    if not lists:
        yield f"{{{name}}}: a list cannot be a part of a text"
        return
    items = schema.get("items")
    if not isinstance(items, Mapping) or items.get("type") != "string":
        yield f"{{{name}}}: a list can be arguments only if its `items` are of type string"
    if placeholders.whole(item) is None:
        yield f"{{{name}}}: a list can only be an argument of its own, found {item!r}"


def _inside(module: str, folder: Path) -> Iterator[Path]:
    """The possible paths of the module inside the pack's folder, without suffix."""
    for root in [folder.parent, *(Path(entry or ".").resolve() for entry in sys.path)]:
        base = root.joinpath(*module.split("."))
        if base.is_relative_to(folder):
            yield folder / base.relative_to(folder)


def _missing(function: str, file: Path, kind: str) -> str | None:
    if file.stat().st_size > LARGEST_MODULE_BYTES:
        return f"expected at most {LARGEST_MODULE_BYTES:,} bytes, found more"
    try:
        module = ast.parse(file.read_bytes(), filename=str(file))
    except (SyntaxError, ValueError) as error:
        return f"not Python: {error}"
    except (MemoryError, RecursionError):
        return "nested too deeply"
    definition = _definition(function, module)
    if definition is None:
        return f"expected a {kind} {function!r}, found none"
    if isinstance(definition, ast.AsyncFunctionDef):
        return f"expected a {kind}, found the coroutine {function!r}"
    return None


@functools.lru_cache(maxsize=1)  # the actions of a pack are nearly always in one module
def _parsed(file: Path, modified_at_ns: int) -> ast.Module:
    return ast.parse(file.read_bytes(), filename=str(file))


def _definition(function: str, module: ast.Module) -> ast.stmt | None:
    """The first statement that defines the function, or may define it."""
    for statement in module.body:
        match statement:
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ) if name == function:
                return statement
            case ast.If() | ast.Try() | ast.With():
                return statement
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                if any((alias.asname or alias.name) in (function, "*") for alias in names):
                    return statement
            case ast.Assign() | ast.AnnAssign():
                if any(isinstance(n, ast.Name) and n.id == function for n in ast.walk(statement)):
                    return statement
    return None
