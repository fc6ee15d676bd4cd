"""What happened to executions, and reading all of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from orchestrator.core.models import Execution, ExecutionEvent
from orchestrator.rollups import causes, minutes
from orchestrator.rollups.models import Mark
from tests.factories import NOW, make_execution
from tests.waiting import wait_until


def roll_up(now: datetime = NOW) -> None:
    """Read until nothing is left: other transactions on the server may have to be waited for."""
    for name in (minutes.NAME, causes.NAME):  # a test that empties tables takes them, too
        Mark.objects.get_or_create(name=name, defaults={"read_to": 0, "seen_to": 0})
    last = ExecutionEvent.objects.order_by("-pk").values_list("pk", flat=True).first() or 0

    def is_read() -> bool:
        minutes.roll_up(now=now)
        read = dict(Mark.objects.values_list("name", "read_to"))
        return all(read[name] >= last for name in (minutes.NAME, causes.NAME))

    wait_until(is_read)


@pytest.fixture
def failed() -> Callable[..., Execution]:
    """An execution that failed, with its history."""

    def make(message: Any = "", *, at: datetime = NOW, **values: Any) -> Execution:
        known: dict[str, Any] = {"reason": "action_failed", "result": {"message": message}}
        execution = make_execution("failed", now=at, **known | values)
        note_end(execution)
        return execution

    return make


def note_end(execution: Execution) -> None:
    """Write the history of an execution that ended."""
    common: dict[str, Any] = {"execution": execution, "attempt": 1, "actor": "w1"}
    assert execution.started_at
    assert execution.ended_at
    ExecutionEvent.objects.bulk_create(
        [
            ExecutionEvent(event="claim", from_status="scheduled", to_status="running",
                           at=execution.started_at, **common),
            ExecutionEvent(event="fail", from_status="running", to_status=execution.status,
                           reason=execution.reason, at=execution.ended_at, **common),
        ]
    )  # fmt: skip
