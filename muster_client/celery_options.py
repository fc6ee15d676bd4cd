"""The treatment of a Celery task's options in Muster: mapped, ignored with a note, or refused.

The table in docs/from-celery.md says the same.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import dataclass, field
from typing import Any

from muster_client import celery_tasks

HOOKS = ("__call__", "before_start", "on_success", "on_failure", "on_retry", "after_return")
RETRY_ARGUMENTS = ("exc", "countdown", "eta")
SENDS = ("delay", "apply_async", "send_task")

NOTES = {
    "ignore_result": "ignored: Muster keeps every result",
    "store_errors_even_if_ignored": "ignored: Muster keeps every error",
    "track_started": "ignored: Muster always knows what has started",
    "reject_on_worker_lost": "ignored: acks_late alone has it repeated",
    "queue": "ignored: the worker is chosen by `worker_selector`, of an action or a request",
    "priority": "ignored: send `priority` with the request",
    "throws": "ignored: every exception fails the execution",
}


@dataclass
class Mapped:
    """The keys of an action, and what to say about them."""

    keys: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def mapped(task: Any) -> Mapped:
    """Map the options of a task."""
    found = Mapped()
    body = _Body(task)
    found.problems += [*_refused(task), *body.problems]
    found.notes += [f"{name}: {text}" for name, text in NOTES.items() if getattr(task, name, None)]
    found.notes += body.notes
    if limit := task.time_limit or task.app.conf.task_time_limit:
        found.keys["timeout_seconds"] = limit
    if task.acks_late:
        found.keys["idempotent"] = True
    if body.retries or _autoretry_for(task) or task.acks_late:
        if task.max_retries is None:
            found.problems.append("max_retries: expected a number, found None: no end in sight")
        else:
            found.keys["retry"] = _policy(task)
    return found


def _autoretry_for(task: Any) -> Any:
    return getattr(task, "autoretry_for", ())


def _refused(task: Any) -> list[str]:
    problems = []
    if task.rate_limit:
        problems.append("rate_limit: Muster has no limit of this kind; remove it, or keep Celery")
    if task.expires:
        problems.append("expires: send `deadline_seconds` with the request instead")
    if task.serializer not in (None, "json"):
        problems.append(f"serializer: expected json, found {task.serializer}")
    own = type(celery_tasks.real(task)).__mro__
    for hook in HOOKS:
        definer = next(each for each in own if hook in vars(each))
        if not definer.__module__.startswith("celery."):
            problems.append(f"{definer.__name__}.{hook}: nothing calls it in Muster")
    return problems


def _policy(task: Any) -> dict[str, Any]:
    """The retry policy. A constant delay is an exponential one that begins at its maximum."""
    stated = getattr(task, "retry_kwargs", {})
    retries = stated.get("max_retries", task.max_retries)
    policy = {"max_attempts": retries + 1}
    backoff = getattr(task, "retry_backoff", False)
    if not _autoretry_for(task) or not backoff:
        delay_ms = round(1000 * stated.get("countdown", task.default_retry_delay))
        if not delay_ms:
            return policy | {"backoff": "none"}
        return policy | {"backoff_base_ms": delay_ms, "max_backoff_ms": delay_ms, "jitter": 0}
    most_ms = 1000 * int(getattr(task, "retry_backoff_max", 600))
    base_ms = 1000 * int(max(1.0, float(backoff)))
    return policy | {
        "backoff_base_ms": min(base_ms, most_ms),
        "max_backoff_ms": most_ms,
        "jitter": 1.0 if getattr(task, "retry_jitter", True) else 0,
    }


class _Body:
    """The source of a task's function, as far as it uses Celery."""

    def __init__(self, task: Any) -> None:
        self.retries = False
        self.problems: list[str] = []
        self.notes: list[str] = []
        function = celery_tasks.signed(task)
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        except (OSError, SyntaxError):
            self.retries = celery_tasks.is_bound(task)
            self.notes.append("its source cannot be read, so its use of Celery was not checked")
            return
        me = ""
        if celery_tasks.is_bound(task):
            me = next(iter(inspect.signature(function).parameters), "")
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(value=ast.Name(id=name), attr=attribute) if me and name == me:
                    self._note_use("self", attribute, celery_tasks.SELF)
                case ast.Attribute(
                    value=ast.Attribute(value=ast.Name(id=name), attr="request"), attr=attribute
                ) if me and name == me:
                    self._note_use("self.request", attribute, celery_tasks.REQUEST)
                case ast.Name(id="Retry"):
                    self.retries = True
                case ast.Call(func=ast.Attribute(attr=name)) if name in SENDS:
                    self.notes.append(
                        f"line {self._line(function, node)}: .{name}() sends to Celery's broker, "
                        "which no action can reach; submit with muster_client, or use a task "
                        "template"
                    )
            if me and _is_retry(node, me):
                self._note_retry(node)

    def _note_use(self, whose: str, attribute: str, known: tuple[str, ...]) -> None:
        self.retries = self.retries or attribute == "retry"
        if attribute not in known:
            self.problems.append(f"{whose}.{attribute}: expected one of {', '.join(known)}")

    def _note_retry(self, call: Any) -> None:
        stated = [keyword.arg or "**" for keyword in call.keywords]
        stated += ["args"] if call.args else []
        for name in stated:
            if name not in RETRY_ARGUMENTS:
                expected = ", ".join(RETRY_ARGUMENTS)
                self.problems.append(f"self.retry({name}=...): expected one of {expected}")

    def _line(self, function: Any, node: ast.Call) -> int:
        return int(function.__code__.co_firstlineno) + node.lineno - 1


def _is_retry(node: ast.AST, me: str) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="retry")):
            return name == me
    return False
