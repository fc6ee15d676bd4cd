"""Muster's side of benchmarks of tasks; called by `muster_side`, with its settings."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import connection
from django.test.utils import CaptureQueriesContext

from benchmarks.remote import BenchmarkError
from orchestrator.core import clock
from orchestrator.core.models import Execution, Worker
from orchestrator.core.models.catalog import forget_actions
from orchestrator.core.reasons import Reason
from orchestrator.core.state_machine import Move
from orchestrator.workflows import engine, task_templates
from orchestrator.workflows.models import Task

CLIENT = "benchmark"


def install_templates(*, sizes: list[int]) -> None:
    """`wide-N`: N steps at once and one that joins them. `linear-N`: one after the other."""
    definitions = []
    for size in sizes:
        names = [f"s{number}" for number in range(size)]
        wide = [_step(name) for name in names]
        linear = [_step(name, *names[max(0, n - 1) : n]) for n, name in enumerate(names)]
        definitions.append(_template(f"wide-{size}", [*wide, _step("join", *names)]))
        definitions.append(_template(f"linear-{size}", linear))
    task_templates.install_templates(definitions, now=clock.now())


def _step(name: str, *parents: str) -> dict[str, Any]:
    return {"name": name, "action": "core.noop", "dependencies": list(parents)}


def _template(name: str, steps: list[dict[str, Any]]) -> dict[str, Any]:
    return task_templates.template_from_values(
        {
            "name": name,
            "namespace_name": "bench",
            "version": "1.0.0",
            "identity_strategy": "always_unique",
            "steps": steps,
        }
    )


def request(name: str) -> UUID:
    new = engine.NewTask(namespace="bench", name=name, version="1.0.0")
    return engine.request(new, requested_by=CLIENT, now=clock.now()).pk


def advance_cost(*, steps: int) -> dict[str, float]:
    """Statements and milliseconds of two advances of a wide task: the one that creates its steps
    and requests them all, and the one that takes in all their results and requests the join.
    By the clock, and without an executor at work beside it."""
    found: dict[str, float] = {}

    def measured(what: str, task_id: UUID) -> None:
        now = clock.now()  # which may be a statement of its own

        def advance() -> object:
            return engine.advance(task_id, now=now, actor=CLIENT)

        found[f"{what} ms"], found[f"{what} statements"] = _cost(advance)

    task_id = request(f"wide-{steps}")
    measured("begin", task_id)
    _end_all()
    measured("settle", task_id)
    engine.cancel(task_id, reason="measured", actor=CLIENT, now=clock.now())
    return found


def _cost(call: Callable[[], object]) -> tuple[float, int]:
    forget_actions()  # what it remembers for a second would make the first call the dearer one
    with CaptureQueriesContext(connection) as queries:
        began = time.perf_counter()
        call()
        elapsed_ms = (time.perf_counter() - began) * 1000
    return elapsed_ms, len(queries)


def _end_all() -> None:
    """Complete every open execution, past any worker."""
    now = clock.now()
    worker, _ = Worker.objects.get_or_create(name="nobody")
    soon = now + timedelta(minutes=5)
    ids = list(Execution.objects.open().values_list("pk", flat=True))
    told: dict[str, Any] = {"now": now, "actor": CLIENT}
    schedule = {"worker": worker.pk, "start_by": soon}
    claim = {"run_deadline_at": soon, "worker_incarnation": 1}
    Execution.objects.transition_many(
        "schedule", [Move(id, "requested", 0, schedule) for id in ids], **told
    )
    Execution.objects.transition_many(
        "claim", [Move(id, "scheduled", 1, claim) for id in ids], **told
    )
    moves = [Move(id, "running", 1, {"result": {}}) for id in ids]
    Execution.objects.transition_many("complete", moves, reason=Reason.SUCCEEDED, **told)


def run_tasks(*, template: str, count: int, within_seconds: float = 300) -> float:
    """Seconds from the request of `count` tasks to the end of the last one. Raises
    BenchmarkError if one does not complete."""
    began = time.monotonic()
    ids = [request(template) for _ in range(count)]
    tasks = Task.objects.filter(pk__in=ids)
    while tasks.filter(ended_at__isnull=True).exists():
        if time.monotonic() - began > within_seconds:
            raise BenchmarkError(f"tasks still open after {within_seconds:.0f} s")
        time.sleep(0.05)
    elapsed = time.monotonic() - began
    if (done := tasks.filter(state="complete").count()) != count:
        raise BenchmarkError(f"expected {count} complete tasks, found {done}")
    return elapsed
