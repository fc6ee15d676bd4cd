"""Imports go down only: no file imports, however indirectly, what imports it, for types neither.

import-linter holds the layers between packages; here are the files in them. And here is what no
linter knows of docstrings: none of them begins as a question.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
ROOTS = ("muster_client", "orchestrator", "settings", "tasks", "workers")
DESCRIBED = (*ROOTS, "benchmarks", "packs")
QUESTION = re.compile(r"\s*(what|how|whether|why|who|whose|when|where|which)\b", re.IGNORECASE)
"""A docstring begins with an imperative or a noun phrase instead."""


def modules() -> dict[str, Path]:
    """Every module of ours by its name, packages by that of their folder."""
    found = {}
    for root in ROOTS:
        for path in sorted((REPOSITORY / root).rglob("*.py")):
            parts = path.relative_to(REPOSITORY).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


def imports() -> Mapping[str, set[str]]:
    """Which modules each module names in an import, wherever in it."""
    known = modules()
    return {
        name: {module for module in _named(path, known) if module in known} - {name}
        for name, path in known.items()
    }


def _named(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """`from package import file` names the file, and not what the package shows in front."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                file = f"{node.module}.{alias.name}"
                yield file if file in known else node.module


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of modules that reach each other (Tarjan's strongly connected components)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        number[name] = lowest[name] = len(number)
        stack.append(name)
        for other in graph[name]:
            if other not in number:
                visit(other)
                lowest[name] = min(lowest[name], lowest[other])
            elif other in stack:
                lowest[name] = min(lowest[name], number[other])
        if lowest[name] == number[name]:
            start = stack.index(name)
            group = stack[start:]
            del stack[start:]
            if len(group) > 1:
                found.append(sorted(group))

    for name in graph:
        if name not in number:
            visit(name)
    return found


def test_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


def test_no_file_imports_what_imports_it() -> None:
    assert circles(imports()) == []


def questions(source: str) -> list[int]:
    """The lines of the docstrings that begin as a question, those below assignments included."""
    return sorted(
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        and QUESTION.match(node.value.value)
    )


def test_docstring_that_is_a_question_is_found() -> None:
    source = '''
"""What a module has."""

LIMIT = 1
"""How many there are."""

class Row:
    """A row."""

    state: str
    """whether it is open."""

    def whole(self):
        """
        Why it is whole.
        """
        self.whatever = "What is no docstring"
        """Whatever it has."""
'''
    assert questions(source) == [2, 5, 11, 14]


def test_no_docstring_begins_as_a_question() -> None:
    assert [
        f"{path.relative_to(REPOSITORY)}:{line}"
        for root in DESCRIBED
        for path in sorted((REPOSITORY / root).rglob("*.py"))
        for line in questions(path.read_text())
    ] == [], "begin with an imperative or a noun phrase: The number of ..., Return True if ..."
