"""Requests of executions for ready steps, in a few statements for any number of steps."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

import structlog
from django.db import transaction

from orchestrator.core import executions
from orchestrator.core.executions import NewExecution, RequestRefused
from orchestrator.core.models import Execution
from orchestrator.core.state_machine import Move
from orchestrator.workflows.engine import outcomes
from orchestrator.workflows.engine.turn import Turn
from orchestrator.workflows.models import Step, StepExecution
from orchestrator.workflows.models.tasks import MOST_TRIES
from orchestrator.workflows.states import StepState
from orchestrator.workflows.states.steps import IN_FLIGHT
from orchestrator.workflows.task_templates import expressions
from orchestrator.workflows.task_templates.definitions import (
    BATCH_WORKER,
    FAIL_FAST,
    StepDefinition,
)

log = structlog.get_logger(__name__)

REFUSED = (expressions.InvalidExpression, expressions.CannotEvaluate)

Failure = tuple[Step, dict[str, Any]]
"""A step, and the error that it stores."""


def enqueue(turn: Turn) -> int:
    """Request an execution for every step that is ready; returns how many.

    Steps whose `when` is false are complete at once, which may make others ready: those are handled
    too. A step whose parameters cannot be evaluated, or are too much, is in error.
    """
    number = 0
    while True:
        ready = _chosen(turn, list(turn.steps.ready(turn.now).without_contents()))
        if not ready:
            return number
        data = _data(turn, ready)
        asked: list[tuple[Step, NewExecution]] = []
        skipped: list[Step] = []
        failed: list[Failure] = []
        for step in ready:
            definition = turn.definition.steps[step.template_step]
            seen = data | {"batch": step.batch or {}}
            budget = expressions.Budget()
            try:
                if step.state == StepState.PENDING and not _is_wanted(definition, seen, budget):
                    skipped.append(step)
                else:
                    parameters = expressions.render(definition.parameters, seen, budget)
                    asked.append((step, _request(turn, definition, parameters)))
            except REFUSED as error:
                failed.append((step, _not_requested(str(error))))
            except Exception as error:
                # whatever the template makes of its data: the other steps and tasks go on
                if not turn.blames(error):
                    raise
                failed.append(_blamed(step, error))
        number += _request_all(turn, asked, failed)
        _fail(turn, failed)
        if not _skip(turn, skipped):
            return number


def _chosen(turn: Turn, ready: Sequence[Step]) -> list[Step]:
    """Limit the workers of each batch to its parallelism, with no new one after a failure if the
    batch is to fail fast."""
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


# --- data for expressions ------------------------------------------------------------------------


def _data(turn: Turn, ready: Iterable[Step]) -> dict[str, Any]:
    """The task, and the steps that ready steps refer to."""
    referred: set[str] = set()
    for name in {step.template_step for step in ready}:
        with suppress(*REFUSED):  # its step fails with that when it is rendered
            referred |= _referred(turn.definition.steps[name])
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


def _referred(step: StepDefinition) -> set[str]:
    """The steps that a step's expressions refer to. Raises InvalidExpression, and CannotEvaluate if
    reading them all takes too long."""
    budget = expressions.Budget()
    referred: set[str] = set()
    for _, text in expressions.texts(step.parameters):
        budget.check_time()
        referred |= expressions.read(text).steps
    if isinstance(step.when, str):
        referred |= expressions.read(step.when, bare=True).steps
    return referred


def _results(turn: Turn, names: Iterable[str]) -> dict[str, Any]:
    """Results by name in the template; the workers of a batch together. A step that was not created
    is absent."""
    entries_of: dict[str, list[tuple[str, Any]]] = defaultdict(list)
    rows = turn.steps.filter(template_step__in=names).order_by("pk")
    for name, state, result in rows.values_list("template_step", "state", "result"):
        entries_of[name].append((state, result))
    results: dict[str, Any] = {}
    for name, entries in entries_of.items():
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


def _is_wanted(step: StepDefinition, data: Mapping[str, Any], budget: expressions.Budget) -> bool:
    if isinstance(step.when, bool):
        return step.when
    return bool(expressions.read(step.when, bare=True).value(data, budget))


# --- outcomes ------------------------------------------------------------------------


def _request(turn: Turn, step: StepDefinition, parameters: Mapping[str, Any]) -> NewExecution:
    return NewExecution(
        action_ref=step.action_ref,
        parameters=parameters,
        priority=turn.task.priority,
        timeout_seconds=step.timeout_seconds,
        correlation_id=turn.task.correlation_id or str(turn.task.pk),
    )


def _request_all(turn: Turn, asked: list[tuple[Step, NewExecution]], failed: list[Failure]) -> int:
    """Request executions; refused ones are added to `failed`."""
    if (turn.task.advance_tries or 0) < MOST_TRIES:
        return _request_together(turn, asked, failed)
    number = 0
    for each in asked:  # one by one: one of them may have been why the first try failed
        try:
            with transaction.atomic():
                number += _request_together(turn, [each], failed)
        except Exception as error:
            if not turn.blames(error):
                raise
            failed.append(_blamed(each[0], error))
    return number


def _request_together(
    turn: Turn, asked: list[tuple[Step, NewExecution]], failed: list[Failure]
) -> int:
    by = f"task:{turn.task.pk}"
    if not asked:
        return 0
    try:
        accepted = executions.request_many([new for _, new in asked], requested_by=by, now=turn.now)
    except RequestRefused as error:
        problems: dict[int, list[str]] = defaultdict(list)
        for refusal in error.refusals:
            problems[refusal.index].append(f"{refusal.pointer}: {refusal.message}")
        failed += [
            (asked[index][0], _not_requested("; ".join(each[:3])))
            for index, each in problems.items()
        ]
        asked = [each for index, each in enumerate(asked) if index not in problems]
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


def _not_requested(why: str) -> dict[str, Any]:
    return {"error": "not requested", "message": why, "failed_by": "workflows"}


def _blamed(step: Step, error: Exception) -> Failure:
    log.error("step not requested", step_id=str(step.pk), exc_info=error)
    return step, outcomes.error_of_template(error)


def _fail(turn: Turn, failed: Iterable[Failure]) -> None:
    groups: dict[str, list[Move]] = defaultdict(list)
    for step, error in failed:
        values = {"error": turn.masker.value(error), "last_failure_at": turn.now}
        reason = error.get("reason", "it could not be requested")
        groups[reason].append(Move(step.pk, step.state, step.fence, values))
    for reason, moves in groups.items():
        turn.move_steps("fail", moves, reason=reason)
