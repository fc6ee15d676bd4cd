"""Failpoints in services that know nothing of them.

A service whose PYTHONPATH begins with `tests/chaos/injected` rewrites the modules of `WATCHED`
while it imports them: each call that commits, publishes or acknowledges (a *site*) goes through
`_Reached`, which looks whether somebody has armed it. `tests/chaos/failpoints.py` says which sites
there are; here is how they are found and how they fail:

- `kill`: the process ends, as by `kill -9`, right before the step;
- `lie`: the step is done, and is then reported as failed in the way in which it could fail: the
  database's connection is gone, the broker's confirm never came, the acknowledgement met a closed
  socket. What nobody waits for (`send_soon`) is done twice: so it looks after such a lie.

A site is named after where it is: `executions.attempts:claim:transition_many`, with `#2` and so on
where a function has several of them. Arming is a file, and firing renames it, so that of all
processes and threads exactly one fires; it writes its pid and that of its parent into the file.
"""

from __future__ import annotations

import ast
import importlib.machinery
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]

WATCHED = (
    "orchestrator.core.executions",
    "orchestrator.core.dead_letters",
    "orchestrator.core.investigations",
    "orchestrator.core.fleet",
    "orchestrator.core.maintenance",
    "orchestrator.core.publisher",
    "orchestrator.core.relay",
    "orchestrator.core.models.backlog",
    "orchestrator.core.models.maintenance",
    "orchestrator.automation.enforcing",
    "orchestrator.automation.following",
    "orchestrator.automation.matching",
    "orchestrator.automation.recording",
    "orchestrator.automation.suppressing",
    "orchestrator.automation.timers",
    "orchestrator.inquiries",
    "orchestrator.queues.gates",
    "orchestrator.workflows.engine",
    "orchestrator.workflows.maintenance",
    "orchestrator.workflows.messages",
    "tasks",
    "workers",
)
"""Modules, and packages with all that is in them."""

DIRECTORY, ROLE = "FAILPOINTS", "FAILPOINT_ROLE"
"""Environment: where failpoints are armed, and which service a process is."""

KILL, LIE = "kill", "lie"
FORMS = (KILL, LIE)

TRANSACTION, COMMIT, PUBLISH, HINT, ACK = "transaction", "commit", "publish", "hint", "ack"
LANE = "lane"
"""A batch on one connection, below what the publisher tells its callers."""

PUBLISHER, RELAY = "publisher", "relay"

OF_A_QUERYSET = ("claim", "insert", "insert_or_count")
"""Statements that are written by hand."""

KINDS = {
    "atomic": TRANSACTION,
    **dict.fromkeys(("transition", "transition_many", *OF_A_QUERYSET), COMMIT),
    **dict.fromkeys(("save", "delete", "execute", "create", "bulk_create"), COMMIT),
    "insert_many": COMMIT,
    **dict.fromkeys(
        ("update", "update_unheld", "bulk_update", "get_or_create", "update_or_create"), COMMIT
    ),
    **dict.fromkeys(("send", "send_raw"), PUBLISH),
    "send_soon": HINT,
    **dict.fromkeys(("ack", "acknowledge", "acknowledge_message", "reject", "requeue"), ACK),
    **dict.fromkeys(("ack_log_error", "reject_log_error"), ACK),
}


# --- where the sites are --------------------------------------------------------------------------


@dataclass(frozen=True)
class Site:
    """One call that commits, publishes or acknowledges."""

    name: str
    kind: str


def sites() -> list[Site]:
    """All sites of all modules that are watched."""
    found = []
    for name in WATCHED:
        path = REPOSITORY / name.replace(".", "/")
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
        for file in files:
            module = ".".join(file.relative_to(REPOSITORY).with_suffix("").parts)
            marker = _Marker(module)
            marker.visit(ast.parse(file.read_text()))
            found += marker.sites
    return found


def _is_in(module: str, packages: Sequence[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


class _Marker(ast.NodeTransformer):
    """Finds the sites of a module, and has each go through `__failpoint__`."""

    def __init__(self, module: str) -> None:
        short = module.removeprefix("orchestrator.").removeprefix("core.")
        self.module = short.removesuffix(".__init__")
        self.sites: list[Site] = []
        self._inside: list[str] = []
        self._count: Counter[str] = Counter()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._visit_inside(node, node.name)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._visit_inside(node, node.name)

    def _visit_inside(self, node: ast.AST, name: str) -> ast.AST:
        self._inside.append(name)
        self.generic_visit(node)
        self._inside.pop()
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if (name := _called(node)) and self._is_site(node, name):
            is_lane = name == "send" and isinstance(node.func, ast.Attribute)
            node.func = self._marked(node.func, name, LANE if is_lane else KINDS[name])
        self.generic_visit(node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        # handed over, to be called after the commit
        return self._marked(node, node.attr, KINDS[node.attr]) if _is_published(node) else node

    def _is_site(self, node: ast.Call, name: str) -> bool:
        """Whether this call is one of ours, and no namesake."""
        is_method = isinstance(node.func, ast.Attribute)
        if name == "send":
            return self.module == PUBLISHER and not isinstance(_owner(node), ast.Attribute)
        if name == "update":  # of a queryset, and no dictionary or set
            return is_method and bool(node.keywords)
        if name in OF_A_QUERYSET:  # and of nothing else that has such a name
            owner = _owner(node)
            return isinstance(owner, ast.Attribute) and owner.attr == "objects"
        if name in ("transition", "transition_many", "insert_many"):
            return True
        return name in KINDS and name != "send_soon" and is_method

    def _marked(self, function: ast.expr, name: str, kind: str) -> ast.expr:
        place = f"{self.module}:{'.'.join(self._inside)}:{name}"
        self._count[place] += 1
        number = f"#{self._count[place]}" if self._count[place] > 1 else ""
        site = Site(place + number, kind)
        self.sites.append(site)
        marked = ast.Call(
            func=ast.Name("__failpoint__", ast.Load()),
            args=[ast.Constant(site.name), ast.Constant(site.kind), _Marked.of(function)],
            keywords=[],
        )
        return ast.fix_missing_locations(ast.copy_location(marked, function))


class _Marked(ast.Attribute):
    """A reference that was marked already: visited through its call, not again by itself."""

    @classmethod
    def of(cls, function: ast.expr) -> ast.expr:
        if not isinstance(function, ast.Attribute):
            return function
        return ast.copy_location(cls(function.value, function.attr, function.ctx), function)


def _called(node: ast.Call) -> str:
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _owner(node: ast.Call) -> ast.expr | None:
    return node.func.value if isinstance(node.func, ast.Attribute) else None


def _is_published(node: ast.Attribute) -> bool:
    return (
        type(node) is ast.Attribute
        and isinstance(node.value, ast.Name)
        and (node.value.id, node.attr) in ((PUBLISHER, "send"), (RELAY, "send_soon"))
    )


# --- in the service -------------------------------------------------------------------------------


def install() -> None:
    """Have what is watched go through here when it is imported. In the service's process."""
    if os.environ.get(DIRECTORY):
        sys.meta_path.insert(0, Finder(lambda name: _is_in(name, WATCHED), _Loader))


class Finder:
    """Has watched modules imported by another loader."""

    def __init__(
        self,
        is_watched: Callable[[str], bool],
        loader: type[importlib.machinery.SourceFileLoader],
    ) -> None:
        self.is_watched = is_watched
        self.loader = loader

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> Any:
        if not self.is_watched(name):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = self.loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        marker = _Marker(fullname)
        tree = marker.visit(ast.parse(self.get_data(self.path)))
        code: CodeType = compile(tree, self.path, "exec")
        return code

    def exec_module(self, module: Any) -> None:
        module.__failpoint__ = _Reached
        super().exec_module(module)


class _Reached:
    """Stands where the function stood: fails if somebody has armed it, and else just calls."""

    def __init__(self, site: str, kind: str, function: Callable[..., Any]) -> None:
        self.site, self.kind, self.function = site, kind, function

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if self.kind == TRANSACTION:
            return _Transaction(self.site, self.function(*arguments, **keywords))
        if not _has_something_to_do(self.kind, arguments):
            return self.function(*arguments, **keywords)
        if fires(self.site, KILL):
            die()
        result = self.function(*arguments, **keywords)
        did_nothing = self.kind == COMMIT and result is not None and not result
        if not did_nothing and fires(self.site, LIE):
            if self.kind == HINT:
                return self.function(*arguments, **keywords)
            raise self._lie()
        return result

    def _lie(self) -> Exception:
        if self.kind == COMMIT:
            return lose_database()
        if self.kind == ACK:
            return BrokenPipeError(f"failpoint {self.site}")
        if self.kind == LANE:
            return ConnectionResetError(f"failpoint {self.site}")
        from orchestrator.core.publisher import BrokerUnavailable

        return BrokerUnavailable(f"failpoint {self.site}")


def _has_something_to_do(kind: str, arguments: Sequence[Any]) -> bool:
    if kind in (PUBLISH, LANE, HINT):
        return bool(arguments[0])
    # transition_many(event, moves)
    return kind != COMMIT or len(arguments) < 2 or bool(arguments[1])


class _Transaction:
    """`transaction.atomic()`, whose commit is killed before, or done and reported as failed."""

    def __init__(self, site: str, atomic: Any) -> None:
        self.site, self.atomic = site, atomic

    def __enter__(self) -> Any:
        return self.atomic.__enter__()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> Any:
        from django.db import connection

        is_the_commit = kind is None and not connection.savepoint_ids
        if is_the_commit and fires(self.site, KILL):
            die()
        if is_the_commit and fires(self.site, LIE):
            really_commit = connection.commit

            def commit() -> None:
                del connection.commit
                really_commit()
                raise lose_database()

            connection.commit = commit  # type: ignore[method-assign]
        return self.atomic.__exit__(kind, error, trace)


def fires(site: str, form: str) -> bool:
    """Whether this site was armed for this service; then it is not any more."""
    directory, role = os.environ[DIRECTORY], os.environ.get(ROLE, "")
    name = file_name(role, site, form)
    with suppress(FileNotFoundError):
        os.rename(f"{directory}/armed/{name}", f"{directory}/fired/{name}")
        with open(f"{directory}/fired/{name}", "w") as file:
            file.write(f"{os.getpid()} {os.getppid()}")
        return True
    return False


def file_name(role: str, site: str, form: str) -> str:
    return f"{role} {site} {form}"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)  # whatever a thread could still do until then


def lose_database() -> Exception:
    """Close this thread's connection as if the server had gone; the error that tells of it."""
    from django.db import OperationalError, connection

    if connection.connection is not None:
        connection.connection.close()
        connection.errors_occurred = True
    return OperationalError("failpoint: done, but the server closed the connection")
