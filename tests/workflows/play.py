"""Workflows without workers: the test itself ends the executions, as it likes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from orchestrator.core.models import Execution
from orchestrator.core.reasons import Reason
from orchestrator.core.state_machine import Move
from orchestrator.workflows import engine, task_templates
from orchestrator.workflows.models import Step, Task, TransitionRecord
from tests.factories import NOW, make_action, make_worker

ACTOR = "executor"


def template(*steps: Mapping[str, Any], **values: Any) -> dict[str, Any]:
    """A checked template of these steps; each runs `core.echo` unless it says otherwise."""
    return task_templates.template_from_values(
        {
            "name": "tidy",
            "namespace_name": "tests",
            "version": "1.0.0",
            "identity_strategy": "always_unique",
            "steps": [
                dict(step)
                if step.get("type") == "inquiry"
                else {"action": "core.echo"} | dict(step)
                for step in steps
            ],
        }
        | values
    )


def step(name: str, *parents: str, **values: Any) -> dict[str, Any]:
    return {"name": name, "dependencies": list(parents)} | values


class Play:
    """One task, and the time that it has."""

    def __init__(
        self, *steps: Mapping[str, Any], context: Any = None, now: datetime = NOW, **values: Any
    ) -> None:
        make_action()
        make_worker()
        self.now = now
        definition = template(*steps, **values)
        task_templates.install_templates([definition], now=now)
        new = engine.NewTask(
            namespace=definition["namespace_name"],
            name=definition["name"],
            version=definition["version"],
            context=context or {},
        )
        self.id = engine.request(new, requested_by="ada", now=now).pk
        self.advance()

    def advance(self) -> str:
        return engine.advance(self.id, now=self.now, actor=ACTOR)

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    @property
    def task(self) -> Task:
        return Task.objects.get(pk=self.id)

    @property
    def state(self) -> str:
        return self.task.state

    def step(self, name: str) -> Step:
        return Step.objects.get(task_id=self.id, name=name)

    @property
    def states(self) -> dict[str, str]:
        return dict(Step.objects.filter(task_id=self.id).values_list("name", "state"))

    def running(self) -> set[str]:
        """The steps that have an execution whose end they wait for."""
        return {name for name, state in self.states.items() if state in ("enqueued", "in_progress")}

    def parameters(self, name: str) -> Any:
        execution = self.step(name).execution
        assert execution is not None
        return execution.parameters

    def end(self, *names: str, result: Any = None, advance: bool = True) -> None:
        """These steps' executions complete."""
        self._end(names, "complete", Reason.SUCCEEDED, {} if result is None else result, advance)

    def fail(self, *names: str, message: str = "it broke", advance: bool = True) -> None:
        result = {"error": "ActionFailed", "message": message, "failed_by": "w1"}
        self._end(names, "fail", Reason.ACTION_FAILED, result, advance)

    def exhaust(self, name: str) -> None:
        """Fail it until it has no attempt left."""
        while self.step(name).state != "error":
            self.fail(name)
            self.wait(120)
            self.advance()

    def _end(
        self, names: Sequence[str], event: str, reason: Reason, result: Any, advance: bool
    ) -> None:
        steps = Step.objects.filter(task_id=self.id, name__in=names)
        executions = [each.execution_id for each in steps]
        assert len(executions) == len(names)
        assert None not in executions
        end_executions(executions, event, reason, result, now=self.now)  # type: ignore[arg-type]
        if advance:
            self.advance()

    def events(self) -> list[str]:
        """What happened to the task itself."""
        records = TransitionRecord.objects.filter(task_id=self.id, step__isnull=True)
        return list(records.values_list("to_state", flat=True))


def end_executions(
    ids: Sequence[UUID], event: str, reason: Reason, result: Any, *, now: datetime
) -> None:
    """Carry executions through their life, in four statements."""
    worker = make_worker()
    schedule = {"worker": worker.pk, "start_by": now + timedelta(minutes=5)}
    run_by = {"run_deadline_at": now + timedelta(minutes=5), "worker_incarnation": 1}
    ends = {"result": result}
    rows = Execution.objects.in_bulk(ids)
    requested = [id for id in ids if rows[id].status == "requested"]
    moves = [Move(id, "requested", 0, schedule) for id in requested]
    Execution.objects.transition_many("schedule", moves, now=now, actor=ACTOR)
    moves = [Move(id, "scheduled", 1, run_by) for id in requested]
    Execution.objects.transition_many("claim", moves, now=now, actor="w1")
    moves = [Move(id, "running", 1, ends) for id in ids]
    Execution.objects.transition_many(event, moves, now=now, actor="w1", reason=reason)


def start_executions(ids: Sequence[UUID], *, now: datetime) -> None:
    """Carry executions as far as their worker's claim."""
    worker = make_worker()
    schedule = {"worker": worker.pk, "start_by": now + timedelta(minutes=5)}
    run_by = {"run_deadline_at": now + timedelta(minutes=5), "worker_incarnation": 1}
    moves = [Move(id, "requested", 0, schedule) for id in ids]
    Execution.objects.transition_many("schedule", moves, now=now, actor=ACTOR)
    moves = [Move(id, "scheduled", 1, run_by) for id in ids]
    Execution.objects.transition_many("claim", moves, now=now, actor="w1")
