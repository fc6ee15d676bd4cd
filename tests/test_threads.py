"""A thread's class has no name that Python gives its own: a method `_handle` hid an attribute that
Python 3.13 brought, and nothing was scheduled there any more."""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterator

from tests.test_imports import modules

OF_ANY_VERSION = {
    "_after_fork",
    "_bootstrap",
    "_bootstrap_inner",
    "_context",
    "_delete",
    "_handle",
    "_ident",
    "_is_stopped",
    "_os_name",
    "_reset_internal_locks",
    "_set_ident",
    "_set_native_id",
    "_set_os_name",
    "_set_tstate_lock",
    "_started",
    "_stop",
    "_tstate_lock",
    "_wait_for_tstate_lock",
}
"""Private names of `threading.Thread`, Python 3.11 to 3.14, some of which this one may not have."""


def classes() -> Iterator[ast.ClassDef]:
    for path in modules().values():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                yield node


def bases(node: ast.ClassDef) -> set[str]:
    return {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases}


def names(node: ast.ClassDef) -> Iterator[str]:
    """Its methods, and the attributes that it gives itself."""
    for part in ast.walk(node):
        if isinstance(part, ast.FunctionDef):
            yield part.name
        elif isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
            yield part.attr


def threads() -> list[ast.ClassDef]:
    known, found = {"Thread"}, list[ast.ClassDef]()
    every = list(classes())
    while more := [node for node in every if node not in found and bases(node) & known]:
        found += more
        known |= {node.name for node in more}
    return found


def test_no_thread_of_ours_hides_a_private_name_of_pythons() -> None:
    private = OF_ANY_VERSION | {name for name in vars(threading.Thread()) if name.startswith("_")}
    found = threads()
    assert {"Scheduler", "Heartbeat", "Claimer"} <= {node.name for node in found}
    assert [(node.name, hidden) for node in found if (hidden := private & set(names(node)))] == []
