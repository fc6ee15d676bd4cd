"""Queues, their work, and workers that serve them."""

from __future__ import annotations

from typing import Any

from orchestrator.core.models import Execution
from orchestrator.queues import changes, definitions
from orchestrator.queues.models import WorkQueue
from tests.factories import NOW, make_execution


def make_queue(name: str = "orders", **values: Any) -> WorkQueue:
    """The queue with this definition, made or changed."""
    file = definitions.source_of(values, name=name)
    definitions.check_queue(file)
    assert file.problems == []
    changes.apply(definitions.new_queue(file.value), actor="tests", now=NOW)
    return changes.find(name)


def waiting(queue: str | None = "orders", number: int = 1, **values: Any) -> list[Execution]:
    """Executions of this queue that wait."""
    lane = None if queue is None else values.pop("lane", "input")
    return [make_execution(queue=queue, lane=lane, **values) for _ in range(number)]
