"""From steps that are ready to executions, however many, in the same few statements."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from orchestrator.core import executions
from orchestrator.core.executions import NewExecution, RequestRefused
from orchestrator.core.models import Execution
from orchestrator.core.state_machine import Move
from orchestrator.workflows.engine.turn import Turn
from orchestrator.workflows.models import Step, StepExecution
from orchestrator.workflows.states import StepState
from orchestrator.workflows.states.steps import IN_FLIGHT
from orchestrator.workflows.task_templates import expressions
from orchestrator.workflows.task_templates.definitions import (
    BATCH_WORKER,
    FAIL_FAST,
    StepDefinition,
)

REFUSED = (expressions.InvalidExpression, expressions.CannotEvaluate)


def enqueue(turn: Turn) -> int:
    """Request an execution for every step that is ready; returns how many.

    Steps whose `when` is false are complete at once, which may make others ready: those are
    looked at, too. A step whose parameters have no value is in error.
    """
    number = 0
    while True:
        ready = _chosen(turn, list(turn.steps.ready(turn.now).without_contents()))
        if not ready:
            return number
        data = _data(turn, ready)
        asked: list[tuple[Step, NewExecution]] = []
        skipped: list[Step] = []
        failed: list[tuple[Step, str]] = []
        for step in ready:
            definition = turn.definition.steps[step.template_step]
            seen = data | {"batch": step.batch or {}}
            try:
                if step.state == StepState.PENDING and not _is_wanted(definition, seen):
                    skipped.append(step)
                else:
                    parameters = expressions.render(definition.parameters, seen)
                    asked.append((step, _request(turn, definition, parameters)))
            except REFUSED as error:
                failed.append((step, str(error)))
        number += _request_all(turn, asked, failed)
        _fail(turn, failed)
        if not _skip(turn, skipped):
            return number


def _chosen(turn: Turn, ready: Sequence[Step]) -> list[Step]:
    """Of the workers of each batch no more than may work at once, and no new one after a failure
    if the batch is to fail fast."""
    if not any(step.kind == BATCH_WORKER for step in ready):
        return list(ready)
    workers = turn.steps.filter(kind=BATCH_WORKER)
    batches = dict(turn.steps.filter(kind="batchable").values_list("pk", "batch"))
    busy: Counter[UUID | None] = Counter()
    failing: set[UUID | None] = set()
    states = [*IN_FLIGHT, StepState.ERROR]
    for created_by, state in workers.filter(state__in=states).values_list("created_by", "state"):
        if state == StepState.ERROR:
            failing.add(created_by)
        else:
            busy[created_by] += 1
    chosen = []
    for step in ready:
        batch = batches.get(step.created_by_id) if step.created_by_id else None
        if batch:
            stops = batch["failure_strategy"] == FAIL_FAST and step.created_by_id in failing
            is_full = busy[step.created_by_id] >= batch["parallelism"]
            if is_full or (stops and step.state == StepState.PENDING):
                continue
            busy[step.created_by_id] += 1
        chosen.append(step)
    return chosen


# --- what expressions see ------------------------------------------------------------------------


def _data(turn: Turn, ready: Iterable[Step]) -> dict[str, Any]:
    """The task, and of the steps those that some ready one refers to."""
    referred: set[str] = set()
    for name in {step.template_step for step in ready}:
        definition = turn.definition.steps[name]
        for _, text in expressions.texts(definition.parameters):
            referred |= expressions.read(text).steps
        if isinstance(definition.when, str):
            referred |= expressions.read(definition.when, bare=True).steps
    task = turn.task
    return {
        "task": {
            "id": str(task.pk),
            "namespace": turn.definition.namespace,
            "name": turn.definition.name,
            "version": turn.definition.version,
            "metadata": turn.definition.metadata,
            "environment": task.environment,
            "context": task.context,
            "priority": task.priority,
            "tags": task.tags,
            "initiator": task.initiator,
            "source_system": task.source_system,
            "reason": task.reason,
            "correlation_id": task.correlation_id,
            "parent_correlation_id": task.parent_correlation_id,
        },
        "steps": _results(turn, referred) if referred else {},
    }


def _results(turn: Turn, names: Iterable[str]) -> dict[str, Any]:
    """By name in the template; the workers of a batch together. Absent: not created."""
    found: dict[str, list[tuple[str, Any]]] = defaultdict(list)
    rows = turn.steps.filter(template_step__in=names).order_by("pk")
    for name, state, result in rows.values_list("template_step", "state", "result"):
        found[name].append((state, result))
    results: dict[str, Any] = {}
    for name, entries in found.items():
        if turn.definition.steps[name].kind == BATCH_WORKER:
            results[name] = {
                "results": [result for _, result in entries],
                "completed": [r for s, r in entries if s == StepState.COMPLETE],
                "count": len(entries),
                "failed": sum(state == StepState.ERROR for state, _ in entries),
            }
        else:
            ((state, result),) = entries
            results[name] = {"state": state, "result": result}
    for name in names:
        if name not in results and turn.definition.steps[name].kind == BATCH_WORKER:
            results[name] = {"results": [], "completed": [], "count": 0, "failed": 0}
    return results


def _is_wanted(step: StepDefinition, data: Mapping[str, Any]) -> bool:
    if isinstance(step.when, bool):
        return step.when
    return bool(expressions.read(step.when, bare=True).value(data))


# --- what becomes of them ------------------------------------------------------------------------


def _request(turn: Turn, step: StepDefinition, parameters: Mapping[str, Any]) -> NewExecution:
    return NewExecution(
        action_ref=step.action_ref,
        parameters=parameters,
        priority=turn.task.priority,
        timeout_seconds=step.timeout_seconds,
        correlation_id=turn.task.correlation_id or str(turn.task.pk),
    )


def _request_all(
    turn: Turn, asked: list[tuple[Step, NewExecution]], failed: list[tuple[Step, str]]
) -> int:
    """Request what can be; what is refused is added to `failed`."""
    by = f"task:{turn.task.pk}"
    if not asked:
        return 0
    try:
        accepted = executions.request_many([new for _, new in asked], requested_by=by, now=turn.now)
    except RequestRefused as error:
        told: dict[int, list[str]] = defaultdict(list)
        for refusal in error.refusals:
            told[refusal.index].append(f"{refusal.pointer}: {refusal.message}")
        failed += [(asked[index][0], "; ".join(each[:3])) for index, each in told.items()]
        asked = [each for index, each in enumerate(asked) if index not in told]
        if not asked:
            return 0
        accepted = executions.request_many([new for _, new in asked], requested_by=by, now=turn.now)
    return _link(turn, [step for step, _ in asked], accepted)


def _link(turn: Turn, steps: Sequence[Step], accepted: Sequence[Execution]) -> int:
    moves = [
        Move(
            step.pk, step.state, step.fence,
            {"execution": execution.pk, "attempts": step.attempts + 1},
        )
        for step, execution in zip(steps, accepted, strict=True)
    ]  # fmt: skip
    turn.move_steps("enqueue", moves)
    StepExecution.objects.bulk_create(
        StepExecution(step=step, execution=execution, fence=step.fence + 1)
        for step, execution in zip(steps, accepted, strict=True)
    )
    return len(moves)


def _skip(turn: Turn, skipped: Iterable[Step]) -> int:
    moves = [Move(step.pk, step.state, step.fence) for step in skipped]
    return len(turn.move_steps("skip", moves, reason="its `when` is false"))


def _fail(turn: Turn, failed: Iterable[tuple[Step, str]]) -> None:
    moves = [
        Move(
            step.pk, step.state, step.fence,
            {
                "error": {"error": "not requested", "message": why, "failed_by": "workflows"},
                "last_failure_at": turn.now,
            },
        )
        for step, why in failed
    ]  # fmt: skip
    turn.move_steps("fail", moves, reason="it could not be requested")
