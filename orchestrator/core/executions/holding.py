"""Executions that no worker runs: an app holds them until what they wait for has come.

held = holding.hold([execution], why="an answer", until=expires_at, now=now, actor="executor")
holding.answer([execution], {execution.pk: response}, now=now, actor="executor")
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import structlog
from django.db import transaction

from orchestrator.core import frame, messages, relay
from orchestrator.core.database import is_outage
from orchestrator.core.errors import Refusal
from orchestrator.core.executions.new_execution import NewExecution
from orchestrator.core.models import Action, Execution
from orchestrator.core.reasons import Reason
from orchestrator.core.state_machine import Move

log = structlog.get_logger(__name__)


def deadline_seconds(action: Action, parameters: Mapping[str, Any]) -> float | None:
    """The deadline of a request that states none, if an app holds the action's executions."""
    held = frame.held_runtimes().get(action.runtime)
    return held.deadline_seconds(parameters) if held else None


def refusals(
    news: Sequence[NewExecution],
    queues: Sequence[str | None],
    actions: Sequence[Action | None],
) -> Iterator[Refusal]:
    """The requests that want a worker for what no worker runs."""
    for index, (new, queue, action) in enumerate(zip(news, queues, actions, strict=True)):
        if action is None or action.runtime not in frame.held_runtimes():
            continue
        why = f"no worker runs {action.ref}"
        if queue is not None:
            yield Refusal(index, "/queue", f"{why}: expected no queue, found {queue!r}")
        if new.worker_id is not None:
            yield Refusal(index, "/worker_id", f"{why}: expected none, found {new.worker_id}")


def hand_over(executions: Sequence[Execution], *, now: datetime, actor: str) -> list[Execution]:
    """Give those that no worker runs to their apps; returns the others. If an app fails, it finds
    them by looking. Call it outside of transactions."""
    others: list[Execution] = []
    taken: dict[str, list[Execution]] = defaultdict(list)
    for execution in executions:
        runtime = execution.action.runtime
        (taken[runtime] if runtime in frame.held_runtimes() else others).append(execution)
    for runtime, group in taken.items():
        try:
            frame.held_runtimes()[runtime].take(group, now=now, actor=actor)
        except Exception as error:
            if is_outage(error):
                raise
            log.exception("held executions not taken", runtime=runtime, n=len(group))
    return others


def without_held(executions: Sequence[Execution]) -> list[Execution]:
    """Those that a worker may run."""
    held = frame.held_runtimes()
    return [execution for execution in executions if execution.action.runtime not in held]


def hold(
    executions: Sequence[Execution], *, why: str, until: datetime, now: datetime, actor: str
) -> set[UUID]:
    """Let requested executions wait for what will answer them; returns the ids that moved."""
    values = {"wait_reason": why, "next_retry_at": until}
    moves = [Move(each.pk, each.status, each.attempt, values) for each in executions]
    return Execution.objects.transition_many("wait", moves, now=now, actor=actor)


def answer(
    executions: Sequence[Execution], results: Mapping[UUID, Any], *, now: datetime, actor: str
) -> set[UUID]:
    """Complete executions that wait with their results; returns the ids that moved. The others
    ended before, as by a cancel or their deadline."""
    moves = [
        Move(each.pk, each.status, each.attempt, {"result": results[each.pk]})
        for each in executions
    ]
    answered = Execution.objects.transition_many(
        "answer", moves, now=now, actor=actor, reason=Reason.ANSWERED
    )
    transaction.on_commit(partial(relay.send_soon, messages.completed(sorted(answered))))
    return answered
