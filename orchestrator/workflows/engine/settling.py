"""Settlement of steps whose executions ended: complete, retried or in error."""

from __future__ import annotations

from collections import defaultdict
from typing import Any
from uuid import UUID

import structlog
from django.db.models import Q

from orchestrator.core.state_machine import Move
from orchestrator.core.states import ExecutionStatus
from orchestrator.workflows.engine import outcomes
from orchestrator.workflows.engine.creation import create_chosen, create_workers
from orchestrator.workflows.engine.outcomes import Outcome, ResultRefused
from orchestrator.workflows.engine.turn import Turn
from orchestrator.workflows.models import Step
from orchestrator.workflows.states import StepState

log = structlog.get_logger(__name__)


def settle(turn: Turn) -> int:
    """Settle steps whose executions ended, and create the steps that they ask for; returns how many
    steps moved.

    One query finds them; only the rows of the executions count, no message.
    """
    ended = turn.steps.filter(
        Q(execution__ended_at__isnull=False) | Q(execution__isnull=True),
        state__in=[StepState.ENQUEUED, StepState.IN_PROGRESS],
    )
    completed: dict[UUID, tuple[Step, Outcome]] = {}
    failed: list[tuple[Step, dict[str, Any]]] = []
    for step in ended.select_related("execution").defer("execution__parameters", "error"):
        definition = turn.definition.steps[step.template_step]
        execution = step.execution
        if execution is None or execution.status != ExecutionStatus.COMPLETED:
            failed.append((step, outcomes.error_of(execution)))
            continue
        try:
            outcome = outcomes.of_result(definition, turn.definition, execution.result)
        except ResultRefused as refused:
            error = outcomes.error_of(execution) | {
                "error": "result refused", "message": str(refused), "failed_by": "workflows",
            }  # fmt: skip
            failed.append((step, error))
        except Exception as error:
            # whatever the schema makes of the result: the other steps and tasks go on
            if not turn.blames(error):
                raise
            log.exception("result not evaluated", step_id=str(step.pk))
            failed.append((step, outcomes.error_of_template(error)))
        else:
            completed[step.pk] = (step, outcome)
    moved = complete(turn, completed, ("hand_in", "complete"))
    return len(moved) + _fail(turn, failed)


def complete(
    turn: Turn,
    completed: dict[UUID, tuple[Step, Outcome]],
    event: str | tuple[str, ...],
    *,
    reason: str = "",
) -> set[UUID]:
    """Complete steps with their results, and create the steps that these ask for."""
    plain, batchable = [], []
    for step, outcome in completed.values():
        values: dict[str, Any] = {"result": outcome.result}
        if outcome.batches is None:
            plain.append(Move(step.pk, step.state, step.fence, values))
        else:
            values["batch"] = outcome.batches.as_dict()
            batchable.append(Move(step.pk, step.state, step.fence, values))
    moved = turn.move_steps(event, plain, reason=reason)
    moved |= turn.move_steps(event, batchable, reason=reason)
    done = {id: completed[id] for id in moved}
    chosen = {id: (s.template_step, o.branches) for id, (s, o) in done.items() if o.branches}
    if chosen:
        create_chosen(turn, chosen)
    batches = {id: (s.template_step, o.batches) for id, (s, o) in done.items() if o.batches}
    if batches:
        create_workers(turn, batches)
    return moved


def _fail(turn: Turn, failed: list[tuple[Step, dict[str, Any]]]) -> int:
    """Give each step another attempt if it has one left, and move it to `error` otherwise."""
    groups: dict[tuple[str, str], list[Move]] = defaultdict(list)
    for step, error in failed:
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
    moved = 0
    for (event, reason), moves in groups.items():
        moved += len(turn.move_steps(("hand_in", event), moves, reason=reason))
    return moved
