"""Requests of executions for ready steps, in a few statements for any number of steps."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

import structlog
from django.db import transaction

from orchestrator.core import executions, expressions
from orchestrator.core.copying import insert_many
from orchestrator.core.errors import Refusal
from orchestrator.core.executions import NewExecution, RequestRefused
from orchestrator.core.models import Execution
from orchestrator.core.state_machine import Move
from orchestrator.workflows.engine import outcomes
from orchestrator.workflows.engine.batches import Room, is_worker, rooms_of, within
from orchestrator.workflows.engine.turn import Failure, Turn, Turns
from orchestrator.workflows.models import Step, StepExecution
from orchestrator.workflows.models.steps import OF_TASK
from orchestrator.workflows.models.tasks import MOST_TRIES
from orchestrator.workflows.states import StepState
from orchestrator.workflows.states.steps import FAILED
from orchestrator.workflows.task_templates.definitions import (
    BATCH_WORKER,
    EXPRESSION_NAMES,
    StepDefinition,
)

log = structlog.get_logger(__name__)

REFUSED = (expressions.InvalidExpression, expressions.CannotEvaluate)


class Entry(NamedTuple):
    """A step, as expressions see it."""

    state: str
    result: Any


@dataclass
class Decided:
    """The decisions about the steps that are ready."""

    asked: list[tuple[Step, NewExecution]] = field(default_factory=list)
    skipped: list[Step] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)


def enqueue(turns: Turns) -> None:
    """Request an execution for every step that is ready.

    Steps whose `when` is false are complete at once, which may make others ready: those are handled
    too. A step whose parameters cannot be evaluated, or are too much, is in error; that may make
    others ready, too: the next worker of a batch, or the step that converges.
    """
    failed: Counter[UUID | None] = Counter()
    while turns:
        ready = list(turns.steps.ready(turns.now).without_contents())
        rooms = rooms_of(ready)
        decided = _decide(turns, within(rooms, ready, ahead=failed))
        _hold_back(decided, rooms, ahead=failed)
        _request_all(turns, decided)
        moved = _fail(turns, decided.failed) | _skip(turns, decided.skipped)
        over = [*decided.skipped, *(step for step, _ in decided.failed)]
        failed.update(each.created_by_id for each, _ in decided.failed if is_worker(each))
        turns = turns.those(turns.of(step) for step in over if step.pk in moved)


def _decide(turns: Turns, ready: Sequence[Step]) -> Decided:
    decided = Decided()
    data = _data(turns, ready)
    for step in ready:
        turn = turns.of(step)
        definition = turn.definition.steps[step.template_step]
        seen = data[step.task_id] | {"batch": step.batch or {}}
        budget = expressions.Budget()
        try:
            if step.state == StepState.PENDING and not _is_wanted(definition, seen, budget):
                decided.skipped.append(step)
            else:
                parameters = expressions.render(
                    definition.parameters, seen, budget, names=EXPRESSION_NAMES
                )
                decided.asked.append((step, _request(turn, definition, parameters)))
        except REFUSED as error:
            decided.failed.append((step, _not_requested(str(error))))
        except Exception as error:
            # whatever the template makes of its data: the other steps and tasks go on
            if not turn.blames(error):
                raise
            decided.failed.append(_blamed(step, error))
    return decided


def _hold_back(
    decided: Decided, rooms: Mapping[UUID | None, Room], *, ahead: Counter[UUID | None]
) -> None:
    """Leave those for which there is no room, after those that cannot be requested have failed."""
    extra = [each for each in decided.asked if ahead[each[0].created_by_id]]
    if not extra:
        return
    why = _why_refused(executions.problems([new for _, new in extra]))
    refused = {extra[index][0].pk: error for index, error in why.items()}
    asked, decided.asked = decided.asked, []
    for step, new in asked:
        if step.pk in refused:
            decided.failed.append((step, refused[step.pk]))
            continue
        if ahead[step.created_by_id]:
            rooms[step.created_by_id].left -= 1
            if rooms[step.created_by_id].left < 0:
                continue
        decided.asked.append((step, new))


def _why_refused(refusals: Iterable[Refusal]) -> dict[int, dict[str, Any]]:
    """By the index of each request that is refused, the error that its step stores."""
    problems: dict[int, list[str]] = defaultdict(list)
    for refusal in refusals:
        problems[refusal.index].append(f"{refusal.pointer}: {refusal.message}")
    return {index: _not_requested("; ".join(each[:3])) for index, each in problems.items()}


# --- data for expressions ------------------------------------------------------------------------


def _data(turns: Turns, ready: Iterable[Step]) -> dict[UUID, dict[str, Any]]:
    """By the id of each task with a ready step: the task, and the steps that its ready steps refer
    to."""
    names: dict[UUID, set[str]] = defaultdict(set)
    for task_id, name in {(step.task_id, step.template_step) for step in ready}:
        referred = names[task_id]
        with suppress(*REFUSED):  # its step fails with that when it is rendered
            referred |= _referred(turns.by_task[task_id].definition.steps[name])
    # tasks whose steps refer to the same ones are read together
    alike: dict[frozenset[str], list[Turn]] = defaultdict(list)
    for task_id, referred in names.items():
        alike[frozenset(referred)].append(turns.by_task[task_id])
    return {
        task_id: {"task": _shown(turns.by_task[task_id]), "steps": results}
        for referred, group in alike.items()
        for task_id, results in _results(turns.those(group), referred).items()
    }


def _shown(turn: Turn) -> dict[str, Any]:
    """The task, as expressions see it."""
    task, definition = turn.task, turn.definition
    return {
        "id": str(task.pk),
        "namespace": definition.namespace,
        "name": definition.name,
        "version": definition.version,
        "metadata": definition.metadata,
        "environment": task.environment,
        "context": task.context,
        "priority": task.priority,
        "tags": task.tags,
        "initiator": task.initiator,
        "source_system": task.source_system,
        "reason": task.reason,
        "correlation_id": task.correlation_id,
        "parent_correlation_id": task.parent_correlation_id,
    }


def _referred(step: StepDefinition) -> set[str]:
    """The steps that a step's expressions refer to. Raises InvalidExpression, and CannotEvaluate if
    reading them all takes too long."""
    budget = expressions.Budget()
    referred: set[str] = set()
    for _, text in expressions.texts(step.parameters):
        budget.check_time()
        referred |= expressions.read(text, names=EXPRESSION_NAMES).steps
    if isinstance(step.when, str):
        referred |= expressions.read(step.when, names=EXPRESSION_NAMES, bare=True).steps
    return referred


def _results(turns: Turns, names: Collection[str]) -> dict[UUID, dict[str, Any]]:
    """By the id of each task, the results of these steps by their names in the template; the
    workers of a batch together. A step that was not created is absent."""
    entries: dict[UUID, dict[str, list[Entry]]] = {id: defaultdict(list) for id in turns.by_task}
    if names:
        rows = turns.steps.filter(template_step__in=names).order_by("pk")
        found = rows.values_list("task_id", "template_step", "state", "result")
        for task_id, name, state, result in found:
            entries[task_id][name].append(Entry(state, result))
    return {turn.task.pk: dict(_results_of(turn, names, entries[turn.task.pk])) for turn in turns}


def _results_of(
    turn: Turn, names: Collection[str], entries: Mapping[str, list[Entry]]
) -> Iterator[tuple[str, Any]]:
    for name in names:
        found = entries.get(name, [])
        if turn.definition.steps[name].kind == BATCH_WORKER:
            yield (
                name,
                {
                    "results": [entry.result for entry in found],
                    "completed": [e.result for e in found if e.state == StepState.COMPLETE],
                    "count": len(found),
                    "failed": sum(entry.state in FAILED for entry in found),
                },
            )
        elif found:
            (entry,) = found
            yield name, entry._asdict()


def _is_wanted(step: StepDefinition, data: Mapping[str, Any], budget: expressions.Budget) -> bool:
    if isinstance(step.when, bool):
        return step.when
    condition = expressions.read(step.when, names=EXPRESSION_NAMES, bare=True)
    return bool(condition.value(data, budget))


# --- outcomes ------------------------------------------------------------------------


def _request(turn: Turn, step: StepDefinition, parameters: Mapping[str, Any]) -> NewExecution:
    return NewExecution(
        action_ref=step.action_ref,
        release_id=(turn.task.releases or {}).get(step.action_ref.partition(".")[0]),
        parameters=parameters,
        queue=step.queue,
        priority=turn.task.priority,
        timeout_seconds=step.timeout_seconds,
        correlation_id=turn.task.correlation_id or str(turn.task.pk),
    )


def _request_all(turns: Turns, decided: Decided) -> None:
    """Request the executions that were decided; refused ones are added to the failures."""
    if all((turn.task.advance_tries or 0) < MOST_TRIES for turn in turns):
        _request_together(turns, decided.asked, decided.failed)
        return
    for each in decided.asked:  # one by one: one may have been why the first try failed
        try:
            with transaction.atomic():
                _request_together(turns, [each], decided.failed)
        except Exception as error:
            if not turns.of(each[0]).blames(error):
                raise
            decided.failed.append(_blamed(each[0], error))


def _request_together(
    turns: Turns, asked: list[tuple[Step, NewExecution]], failed: list[Failure]
) -> None:
    while asked:
        by = [f"{OF_TASK}{step.task_id}" for step, _ in asked]
        try:
            accepted = executions.request_many(
                [new for _, new in asked], requested_by=by, now=turns.now
            )
        except RequestRefused as error:
            why = _why_refused(error.refusals)
            failed += [(asked[index][0], each) for index, each in why.items()]
            asked = [each for index, each in enumerate(asked) if index not in why]
        else:
            _link(turns, [step for step, _ in asked], accepted)
            return


def _link(turns: Turns, steps: Sequence[Step], accepted: Sequence[Execution]) -> None:
    moves = [
        Move(
            step.pk, step.state, step.fence,
            {"execution": execution.pk, "attempts": step.attempts + 1},
        )
        for step, execution in zip(steps, accepted, strict=True)
    ]  # fmt: skip
    turns.move_steps("enqueue", moves)
    insert_many(
        [
            # the id alone: who knows its execution is known by it, and the two would stay until
            # somebody looks for garbage
            StepExecution(step=step, execution_id=execution.pk, fence=step.fence + 1)
            for step, execution in zip(steps, accepted, strict=True)
        ]
    )
    for step in steps:
        turns.of(step).enqueued += 1


def _skip(turns: Turns, skipped: Iterable[Step]) -> set[UUID]:
    moves = [Move(step.pk, step.state, step.fence) for step in skipped]
    return turns.move_steps("skip", moves, reason="its `when` is false")


def _not_requested(why: str) -> dict[str, Any]:
    return {"error": "not requested", "message": why, "failed_by": "workflows"}


def _blamed(step: Step, error: Exception) -> Failure:
    log.error("step not requested", step_id=str(step.pk), exc_info=error)
    return step, outcomes.error_of_template(error)


def _fail(turns: Turns, failed: Iterable[Failure]) -> set[UUID]:
    groups: dict[str, list[Move]] = defaultdict(list)
    for step, error in failed:
        values = {"error": turns.of(step).masker.value(error), "last_failure_at": turns.now}
        reason = error.get("reason", "it could not be requested")
        groups[reason].append(Move(step.pk, step.state, step.fence, values))
    moved: set[UUID] = set()
    for reason, moves in groups.items():
        moved |= turns.move_steps("fail", moves, reason=reason)
    return moved
