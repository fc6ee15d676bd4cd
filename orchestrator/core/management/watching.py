"""Following executions: the history that was written since one last looked."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from uuid import UUID

from orchestrator.core.models import Execution, ExecutionEvent

LOOK_EVERY_SECONDS = 0.3
LOOK_BACK = 2_000
"""Rows commit in another order than that of their numbers, so the newest are read again."""


def follow(execution_id: UUID) -> Iterator[ExecutionEvent]:
    """Every transition of one execution, past and coming, until it is over."""
    seen = 0
    while True:
        is_over = Execution.objects.filter(pk=execution_id, ended_at__isnull=False).exists()
        events = list(ExecutionEvent.objects.of(execution_id).filter(pk__gt=seen))
        yield from events
        if events:
            seen = events[-1].pk
        if is_over:
            return
        time.sleep(LOOK_EVERY_SECONDS)


def follow_all() -> Iterator[ExecutionEvent]:
    """Every transition from now on, of all executions; never ends."""
    newest = ExecutionEvent.objects.order_by("-pk").values_list("pk", flat=True)
    seen = set(newest[:LOOK_BACK])
    last = max(seen, default=0)
    while True:
        for event in ExecutionEvent.objects.filter(pk__gt=last - LOOK_BACK).order_by("pk"):
            if event.pk not in seen:
                seen.add(event.pk)
                last = max(last, event.pk)
                yield event
        seen = {pk for pk in seen if pk > last - LOOK_BACK}
        time.sleep(LOOK_EVERY_SECONDS)


def wait_for_all(execution_ids: Collection[UUID]) -> Iterator[list[Execution]]:
    """Executions as they end, until all have ended."""
    open_ids = set(execution_ids)
    while open_ids:
        ended = list(
            Execution.objects.filter(pk__in=list(open_ids)[:500], ended_at__isnull=False)
            .select_related("worker", "action")
            .order_by("pk")
        )
        open_ids -= {execution.pk for execution in ended}
        if ended:
            yield ended
        else:
            time.sleep(LOOK_EVERY_SECONDS)
