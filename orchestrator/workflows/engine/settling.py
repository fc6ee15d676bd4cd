"""Settlement of steps whose executions ended: complete, retried or in error."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from uuid import UUID

import structlog
from django.db.models import Q

from orchestrator.core.state_machine import Move
from orchestrator.core.states import ExecutionStatus
from orchestrator.workflows.engine import outcomes
from orchestrator.workflows.engine.creation import create_chosen, create_workers
from orchestrator.workflows.engine.outcomes import Outcome, ResultRefused
from orchestrator.workflows.engine.turn import Failure, Turn, Turns
from orchestrator.workflows.models import Step
from orchestrator.workflows.states import StepState

log = structlog.get_logger(__name__)

READ = (
    *("task_id", "template_step", "state", "fence", "attempts", "max_attempts", "retryable"),
    *(f"execution__{name}" for name in ("status", "reason", "result", "lost_workers")),
)
"""The columns that are read of a step and its execution: a fifth of all."""


def settle(turns: Turns) -> None:
    """Settle steps whose executions ended, and create the steps that they ask for.

    One query finds them; only the rows of the executions count, no message.
    """
    ended = turns.steps.filter(
        Q(execution__ended_at__isnull=False) | Q(execution__isnull=True),
        state__in=[StepState.ENQUEUED, StepState.IN_PROGRESS, StepState.WAITING_FOR_INQUIRY],
    )
    completed: dict[UUID, tuple[Step, Outcome]] = {}
    failed: list[Failure] = []
    for step in ended.select_related("execution").only(*READ):
        try:
            completed[step.pk] = step, _outcome(turns.of(step), step)
        except _Failed as failure:
            failed.append((step, failure.error))
    complete(turns, completed, ("hand_in", "complete"))
    _fail(turns, failed)


class _Failed(Exception):
    """The step's execution gave no result that it may have."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__()
        self.error = error


def _outcome(turn: Turn, step: Step) -> Outcome:
    """The meaning of its ended execution for the step. Raises _Failed."""
    execution = step.execution
    if execution is None or execution.status != ExecutionStatus.COMPLETED:
        raise _Failed(outcomes.error_of(execution))
    definition = turn.definition.steps[step.template_step]
    try:
        return outcomes.of_result(definition, turn.definition, execution.result)
    except ResultRefused as refused:
        error = outcomes.error_of(execution) | {
            "error": "result refused", "message": str(refused), "failed_by": "workflows",
        }  # fmt: skip
        raise _Failed(error) from None
    except Exception as error:
        # whatever the schema makes of the result: the other steps and tasks go on
        if not turn.blames(error):
            raise
        log.exception("result not evaluated", step_id=str(step.pk))
        raise _Failed(outcomes.error_of_template(error)) from None


def complete(
    turns: Turns,
    completed: dict[UUID, tuple[Step, Outcome]],
    event: str | tuple[str, ...],
    *,
    reason: str = "",
    values: Mapping[str, Any] = MappingProxyType({}),
) -> set[UUID]:
    """Complete steps with their results, and create the steps that these ask for; returns the ids
    that moved. `values`: other columns to set, the same for all."""
    plain, batchable = [], []
    for step, outcome in completed.values():
        assigned: dict[str, Any] = {**values, "result": outcome.result}
        if outcome.batches is None:
            plain.append(Move(step.pk, step.state, step.fence, assigned))
        else:
            assigned["batch"] = outcome.batches.as_dict()
            batchable.append(Move(step.pk, step.state, step.fence, assigned))
    moved = turns.move_steps(event, plain, reason=reason)
    moved |= turns.move_steps(event, batchable, reason=reason)
    for turn, done in _by_turn(turns, [completed[id] for id in moved]):
        turn.settled += len(done)
        chosen = {s.pk: (s.template_step, o.branches) for s, o in done if o.branches}
        if chosen:
            create_chosen(turn, chosen)
        batches = {s.pk: (s.template_step, o.batches) for s, o in done if o.batches}
        if batches:
            create_workers(turn, batches)
    return moved


def _by_turn(
    turns: Turns, done: Iterable[tuple[Step, Outcome]]
) -> Iterator[tuple[Turn, list[tuple[Step, Outcome]]]]:
    groups: dict[UUID, list[tuple[Step, Outcome]]] = defaultdict(list)
    for each in done:
        groups[each[0].task_id].append(each)
    return ((turns.by_task[task_id], group) for task_id, group in groups.items())


def _fail(turns: Turns, failed: Sequence[Failure]) -> None:
    """Give each step another attempt if it has one left, and move it to `error` otherwise."""
    groups: dict[tuple[str, str], list[Move]] = defaultdict(list)
    for step, error in failed:
        turn = turns.of(step)
        retry = turn.definition.steps[step.template_step].retry
        values: dict[str, Any] = {
            "error": turn.masker.value(error),
            "last_failure_at": turn.now,
        }
        event = "fail"
        again = step.retryable and step.attempts < step.max_attempts
        again &= error["error"] != outcomes.TEMPLATE_FAILED
        if again and outcomes.may_be_retried(step.execution):
            values["next_retry_at"] = turn.now + retry.delay(step.attempts)
            event = "wait_for_retry"
        move = Move(step.pk, step.state, step.fence, values)
        groups[event, error.get("reason") or error["error"]].append(move)
    moved: set[UUID] = set()
    for (event, reason), moves in groups.items():
        moved |= turns.move_steps(("hand_in", event), moves, reason=reason)
    for step, _ in failed:
        turns.of(step).settled += step.pk in moved
