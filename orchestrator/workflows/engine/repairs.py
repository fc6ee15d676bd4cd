"""Repairs of a stuck step by an operator, and its cancellation. The task continues in the same
transaction, or with an executor if it was quarantined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from orchestrator.core import executions, json_values
from orchestrator.core.authority import Principal
from orchestrator.core.errors import Conflict, MusterError, NotFound
from orchestrator.core.state_machine import Move, TransitionConflict
from orchestrator.inquiries import answering
from orchestrator.workflows.engine import outcomes
from orchestrator.workflows.engine.advancing import take
from orchestrator.workflows.engine.requests import require_permission
from orchestrator.workflows.engine.settling import complete
from orchestrator.workflows.engine.turn import Turn, Turns, begin
from orchestrator.workflows.models import Step, TransitionRecord
from orchestrator.workflows.states import StepState
from orchestrator.workflows.states.steps import IN_FLIGHT

BY_HAND = ("reset", "resolve", "complete_manually", "cancel")
"""The events of repairs."""

REPAIRS = ("reset", "resolve", "complete", "cancel")
"""The repairs, as faces name them."""

LONGEST_REASON = 500
"""With the name on whose behalf it happens."""


class UnknownStep(NotFound):
    """No step has this id."""


class ReasonMissing(MusterError):
    """Say why: a reason is kept with every action on a step."""


class StepIsFinal(Conflict):
    """The step is over and cannot be changed."""

    kind = "already-over"


class StepHasMoved(Conflict):
    """The step was enqueued or repaired since the operator looked at it."""

    kind = "step-has-moved"


class StepIsBusy(Conflict):
    """The step has an execution in process; use force to stop it."""

    kind = "step-is-busy"


@dataclass(frozen=True)
class _By:
    """The actor of a repair of a step, the reason, and what they saw of the step."""

    reason: str
    actor: str
    now: datetime
    force: bool
    seen_fence: int | None


def reset_for_retry(
    step_id: UUID,
    *,
    reason: str,
    actor: str,
    now: datetime,
    force: bool = False,
    seen_fence: int | None = None,
) -> Step:
    """Retry a step at once, with its attempts counted from 0 again.

    `seen_fence`: the step's fence when the operator looked at it. Raises as `resolve_manually`
    does, and StepIsFinal also if there is nothing to reset.
    """
    by = _By(reason, actor, now, force, seen_fence)
    with _repair(step_id, by) as (turns, step):
        if step.state == StepState.PENDING:
            raise StepIsFinal(f"Step {step.name} is pending: there is nothing to reset")
        values = {"attempts": 0, "execution": None}
        _move(turns, step, "reset", reason, values)
    return step


def resolve_manually(
    step_id: UUID,
    *,
    reason: str,
    actor: str,
    now: datetime,
    force: bool = False,
    seen_fence: int | None = None,
) -> Step:
    """Count a step as satisfied, without a result.

    Raises UnknownStep, ReasonMissing; StepIsFinal from `complete`, `cancelled` and
    `resolved_manually`, or if its task is over; StepIsBusy if it has an execution in process and
    `force` is not given. With `force` that execution is cancelled, and its end no longer counts.
    StepHasMoved if it was enqueued or repaired since the operator saw `seen_fence`.
    """
    by = _By(reason, actor, now, force, seen_fence)
    with _repair(step_id, by) as (turns, step):
        _move(turns, step, "resolve", reason, {"execution": step.execution_id})
    return step


def complete_manually(
    step_id: UUID,
    *,
    result: Any,
    reason: str,
    actor: str,
    now: datetime,
    force: bool = False,
    metadata: Mapping[str, Any] | None = None,
    principal: Principal | None = None,
    seen_fence: int | None = None,
) -> Step:
    """Complete a step with this result, which its children see like one of its own, and keep the
    evidence for it, `metadata`, which they do not see.

    The result may decide what later steps do, so `principal` must be permitted to run each action
    that the template names. Raises as `resolve_manually` does, PermissionMissing, and ResultRefused
    if the step may not have such a result.
    """
    by = _By(reason, actor, now, force, seen_fence)
    with _repair(step_id, by) as (turns, step):
        definition = turns.only.definition
        if principal is not None:
            require_permission(definition, principal)
        for named, value in (("result", result), ("metadata", metadata)):
            for place, what in json_values.faults(value):
                raise outcomes.ResultRefused(f"the {named}{place} {what}")
        outcome = outcomes.of_result(definition.steps[step.template_step], definition, result)
        completed, values = {step.pk: (step, outcome)}, {"completion_metadata": metadata}
        if not complete(turns, completed, "complete_manually", reason=reason, values=values):
            raise TransitionConflict(f"Step {step.name} has moved meanwhile; try again")
    return step


def cancel_step(
    step_id: UUID,
    *,
    reason: str,
    actor: str,
    now: datetime,
    force: bool = False,
    seen_fence: int | None = None,
) -> Step:
    """End a step without its work, for good. The steps that depend on it do not begin; the rest of
    the task goes on, and then the task is blocked until somebody closes it.

    Raises as `resolve_manually` does.
    """
    by = _By(reason, actor, now, force, seen_fence)
    with _repair(step_id, by) as (turns, step):
        _move(turns, step, "cancel", reason, {})
    return step


@contextmanager
def _repair(step_id: UUID, by: _By) -> Iterator[tuple[Turns, Step]]:
    """Lock the step's task, check, let the caller move the step, stop its execution, advance the
    task."""
    check_reason(by.reason)
    with transaction.atomic():
        task_id = Step.objects.filter(pk=step_id).values_list("task_id", flat=True).first()
        if task_id is None:
            raise UnknownStep(f"No step has the id {step_id}")
        turns = begin(task_id, now=by.now, actor=by.actor)
        turn = turns.only
        # after the lock: it may have moved while we waited
        step = Step.objects.get(pk=step_id)
        _refuse(turn, step, by)
        stopped = step.execution_id if step.state in IN_FLIGHT else None
        yield turns, step
        if stopped is not None:
            stop([stopped], now=by.now, actor=by.actor)
        if turn.task.is_quarantined:
            # what executors died of is not for this process to try
            turn.release(by.reason)
        else:
            take(turns, repaired=True)
        step.refresh_from_db()


def possible(step: Step) -> list[str]:
    """The repairs that would change this step: `reset`, `resolve`, `complete`, `cancel`. Its task
    is not over."""
    if step.is_terminal:
        return []
    return [verb for verb in REPAIRS if verb != "reset" or step.state != StepState.PENDING]


def check_reason(reason: str) -> None:
    """Raise ReasonMissing unless there is one."""
    if not 0 < len(reason.strip()) <= LONGEST_REASON:
        raise ReasonMissing(
            f"expected a reason of 1 to {LONGEST_REASON} characters, with any name in it"
        )


def on_behalf_of(name: str | None, reason: str) -> str:
    """The reason, and the name that the caller gave for the person behind the repair. Nobody has
    checked that name, so the actor stays the caller.

    Raises ReasonMissing if there is no reason, or both together are too long.
    """
    check_reason(reason)
    if not name:
        return reason
    named = f"{reason} (on behalf of {name})"
    check_reason(named)
    return named


def _refuse(turn: Turn, step: Step, by: _By) -> None:
    if step.is_terminal:
        raise StepIsFinal(f"Step {step.name} is {step.state}, which is final{_by_whom(step)}")
    if turn.task.is_terminal:
        raise StepIsFinal(f"Task {turn.task.pk} is {turn.task.state}, which is final")
    if by.seen_fence is not None and by.seen_fence != step.fence:
        raise StepHasMoved(
            f"Step {step.name} has moved since you looked: it is {step.state}{_by_whom(step)}. "
            "Nothing was changed"
        )
    if step.state in IN_FLIGHT and not by.force:
        raise StepIsBusy(
            f"Step {step.name} is {step.state}; with force its execution {step.execution_id} is "
            "cancelled and its end no longer counts"
        )


def _by_whom(step: Step) -> str:
    """The last repair of the step in words, for whoever comes second; empty if there is none."""
    repairs = TransitionRecord.objects.filter(step=step, event__in=BY_HAND).order_by("-pk")
    last = repairs.first()
    if last is None:
        return ""
    return f': {last.event} by {last.actor} at {last.at:%Y-%m-%d %H:%M:%S} UTC, "{last.reason}"'


def _move(turns: Turns, step: Step, event: str, reason: str, values: dict[str, Any]) -> None:
    move = Move(step.pk, step.state, step.fence, values)
    if not turns.move_steps(event, [move], reason=reason):
        raise TransitionConflict(f"Step {step.name} has moved meanwhile; try again")


def stop(execution_ids: list[UUID], *, now: datetime, actor: str) -> None:
    """Cancel executions whose steps no longer wait for them, and what they have asked."""
    for execution_id in execution_ids:
        try:
            executions.cancel(execution_id=execution_id, actor=actor, now=now)
        except (executions.AlreadyOver, executions.UnknownExecution):
            continue  # it ended meanwhile, which is fine too
    answering.cancel_asked_by(
        execution_ids, now=now, actor=actor, reason="its step no longer waits for the answer"
    )
