"""Executions of `core.ask`: no worker runs them, an inquiry holds them up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction

from orchestrator.core import clock, executions
from orchestrator.core.errors import MusterError
from orchestrator.core.json_values import is_number
from orchestrator.core.models import Execution
from orchestrator.core.reasons import Reason
from orchestrator.core.state_machine import TransitionConflict
from orchestrator.inquiries import asking, questions
from orchestrator.inquiries.models import Inquiry, InquiryWait
from orchestrator.inquiries.models.inquiries import tree_of

RUNTIME = "inquiry"
AFTER_EXPIRY = timedelta(seconds=10)
DEADLINE_AFTER_TTL_SECONDS = 60.0


class CannotWait(MusterError):
    """There is no such inquiry of the same task."""


def deadline_seconds(parameters: Mapping[str, Any]) -> float:
    """The deadline of a request that states none: a minute after the time for the answer."""
    asked = _inquiry_named(parameters)
    if asked is not None:
        left = (asked.expires_at - clock.now()).total_seconds()
        return max(left, 0.0) + DEADLINE_AFTER_TTL_SECONDS
    ttl, (least, most) = parameters.get("ttl_seconds"), questions.TTL_SECONDS
    if not (is_number(ttl) and least <= ttl <= most):
        ttl = questions.DAY_SECONDS
    return ttl + DEADLINE_AFTER_TTL_SECONDS


def take(held: Sequence[Execution], *, now: datetime, actor: str) -> int:
    """Ask what these executions are to ask, and let them wait for it; returns how many do.

    Each in one transaction: the inquiry, the wait, the status. Those whose question is refused
    fail. Safe to run twice, and at once with others.
    """
    wanted = [execution.pk for execution in held]
    rows = Execution.objects.filter(pk__in=wanted, status=Execution.Status.REQUESTED)
    return sum(_take_one(each, now=now, actor=actor) for each in rows.with_actions())


def _take_one(execution: Execution, *, now: datetime, actor: str) -> bool:
    try:
        with transaction.atomic():
            _hold(execution, now=now, actor=actor)
    except TransitionConflict:
        return False  # another process got there first
    except MusterError as refused:
        executions.end_attempts(
            [execution],
            reason=Reason.INQUIRY_REFUSED,
            detail=str(refused),
            failed_by=actor,
            now=now,
        )
        return False
    return True


def _hold(execution: Execution, *, now: datetime, actor: str) -> None:
    """Raises QuestionRefused, TooLate, CannotWait and TransitionConflict."""
    if questions.WAIT_FOR in execution.parameters:
        inquiry = _of_same_tree(execution)
    else:
        question = questions.read(execution.parameters)
        asked = asking.by_execution(execution, purpose=asking.OWN_PURPOSE, holds_it=True)
        inquiry = asking.ask(question, asked=asked, now=now)
    wait = InquiryWait(execution_id=execution.pk, inquiry=inquiry, since=now)
    InquiryWait.objects.bulk_create([wait], ignore_conflicts=True)
    held = executions.hold(
        [execution],
        why=f"an answer to inquiry {inquiry.pk}",
        until=max(inquiry.expires_at, now) + AFTER_EXPIRY,
        now=now,
        actor=actor,
    )
    if not held:
        raise TransitionConflict


def _of_same_tree(execution: Execution) -> Inquiry:
    inquiry = _inquiry_named(execution.parameters)
    if inquiry is None or inquiry.tree != tree_of(execution):
        named = execution.parameters[questions.WAIT_FOR]
        raise CannotWait(f"/wait_for: no inquiry of the same task has the id {named!r:.80}")
    return inquiry


def _inquiry_named(parameters: Mapping[str, Any]) -> Inquiry | None:
    """The inquiry that `wait_for` names."""
    try:
        id = UUID(parameters[questions.WAIT_FOR])
    except (KeyError, ValueError, TypeError, AttributeError):
        return None
    return Inquiry.objects.filter(pk=id).first()
