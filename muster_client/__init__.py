"""Muster for Python programmers: a client of its API, and the decorator of actions.

    with Muster("http://127.0.0.1:8000", token=token) as muster:
        execution = muster.submit("shop.charge", {"order": "A-1"}, idempotency_key="A-1")
        print(muster.wait(execution.id).result)

    @action(idempotent=True, retry={"max_attempts": 3})
    def charge(*, order: str) -> dict[str, str]: ...

Imports nothing of Muster's own and nothing of Django, and the client only when it is asked for: the
process of an action needs neither it nor httpx.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from muster_client.action import TaskRejected, TryAgain, action

if TYPE_CHECKING:
    from muster_client.clients import AsyncMuster, Muster
    from muster_client.errors import (
        AlreadyOver,
        Conflict,
        ExecutionDidNotComplete,
        FieldProblem,
        Forbidden,
        IdempotencyConflict,
        Invalid,
        InvalidArgument,
        MusterClientError,
        NotFound,
        Problem,
        StillOpen,
        Unauthorized,
        Unavailable,
        UnexpectedAnswer,
        Unreachable,
    )
    from muster_client.executions import Event, Execution
    from muster_client.patience import Patience

__all__ = [
    "AlreadyOver",
    "AsyncMuster",
    "Conflict",
    "Event",
    "Execution",
    "ExecutionDidNotComplete",
    "FieldProblem",
    "Forbidden",
    "IdempotencyConflict",
    "Invalid",
    "InvalidArgument",
    "Muster",
    "MusterClientError",
    "NotFound",
    "Patience",
    "Problem",
    "StillOpen",
    "TaskRejected",
    "TryAgain",
    "Unauthorized",
    "Unavailable",
    "UnexpectedAnswer",
    "Unreachable",
    "action",
]

_HOMES = {
    "Muster": "clients",
    "AsyncMuster": "clients",
    "Event": "executions",
    "Execution": "executions",
    "Patience": "patience",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = importlib.import_module(f"{__name__}.{_HOMES.get(name, 'errors')}")
    return getattr(home, name)
