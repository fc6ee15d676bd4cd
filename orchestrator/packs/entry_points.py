"""Entry points, as far as they can be checked without running anything."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from orchestrator import placeholders

PYTHON = re.compile(r"(?P<module>[A-Za-z_]\w*(\.[A-Za-z_]\w*)+):(?P<function>[A-Za-z_]\w*)")

Finding = tuple[tuple[int, ...], str]
"""Where in the entry point, and what is wrong."""


def python_problems(entry_point: Any, *, folder: Path) -> Iterator[Finding]:
    """A module inside the pack is parsed, not imported. What it imports is the workers' affair."""
    match = PYTHON.fullmatch(entry_point) if isinstance(entry_point, str) else None
    if match is None:
        yield (), f"expected package.module:function, found {entry_point!r}"
        return
    for base in _inside(match["module"], folder):
        files = [base.with_suffix(".py"), base / "__init__.py"]
        file = next((file for file in files if file.is_file()), None)
        if file is None:
            yield (), f"expected the module in {files[0].relative_to(folder)}, found no such file"
        elif message := _missing(match["function"], file):
            yield (), f"{file.relative_to(folder)}: {message}"
        return


def shell_problems(entry_point: Any, *, schema: Any) -> Iterator[Finding]:
    if not isinstance(entry_point, list) or not entry_point:
        yield (), f"expected a list of arguments, the command first, found {entry_point!r}"
        return
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    required = schema.get("required") if isinstance(schema, Mapping) else None
    for index, item in enumerate(entry_point):
        if not isinstance(item, str):
            yield (index,), f"expected text, found {item!r}: put it in quotes"
            continue
        for name in placeholders.names(item):
            for message in _placeholder_problems(item, name, properties or {}, required or []):
                yield (index,), message


def _placeholder_problems(
    item: str, name: str, properties: Mapping[str, Any], required: list[Any]
) -> Iterator[str]:
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
    items = schema.get("items")
    if not isinstance(items, Mapping) or items.get("type") != "string":
        yield f"{{{name}}}: a list can be arguments only if its `items` are of type string"
    if placeholders.whole(item) is None:
        yield f"{{{name}}}: a list can only be an argument of its own, found {item!r}"


def _inside(module: str, folder: Path) -> Iterator[Path]:
    """Where the module would be, if that is in the pack, without suffix."""
    folder = folder.resolve()
    for root in [folder.parent, *(Path(entry or ".").resolve() for entry in sys.path)]:
        base = root.joinpath(*module.split("."))
        if base.is_relative_to(folder):
            yield folder / base.relative_to(folder)


def _missing(function: str, file: Path) -> str | None:
    try:
        module = ast.parse(file.read_bytes(), filename=str(file))
    except (SyntaxError, ValueError) as error:
        return f"not Python: {error}"
    for statement in module.body:
        match statement:
            case ast.AsyncFunctionDef(name=name) if name == function:
                return f"expected a function, found the coroutine {function!r}"
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) if name == function:
                return None
            case ast.If() | ast.Try() | ast.With():
                return None  # may define it
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                if any((alias.asname or alias.name) in (function, "*") for alias in names):
                    return None
            case ast.Assign() | ast.AnnAssign():
                if any(isinstance(n, ast.Name) and n.id == function for n in ast.walk(statement)):
                    return None
    return f"expected a function {function!r}, found none"
