"""Following executions, by reading new rows of history again and again."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from uuid import UUID

from django.db.models import QuerySet

from orchestrator.core.models import Execution, ExecutionEvent

LOOK_EVERY_SECONDS = 0.3
LOOK_BACK = 2_000
"""The newest rows are read again: rows do not commit in the order of their numbers."""


def follow(execution_id: UUID) -> Iterator[ExecutionEvent]:
    """Yield every transition of one execution, past and future, until it has ended."""
    seen = 0
    while True:
        has_ended = Execution.objects.filter(pk=execution_id, ended_at__isnull=False).exists()
        events = list(ExecutionEvent.objects.of(execution_id).filter(pk__gt=seen))
        yield from events
        if events:
            seen = events[-1].pk
        if has_ended:
            return
        time.sleep(LOOK_EVERY_SECONDS)


def follow_all(rows: QuerySet[ExecutionEvent]) -> Iterator[ExecutionEvent]:
    """Yield every transition among these from now on; never ends."""
    newest = ExecutionEvent.objects.order_by("-pk").values_list("pk", flat=True)
    seen = set(newest[:LOOK_BACK])
    last = max(seen, default=0)
    while True:
        for event in rows.filter(pk__gt=last - LOOK_BACK).order_by("pk"):
            if event.pk not in seen:
                seen.add(event.pk)
                last = max(last, event.pk)
                yield event
        seen = {pk for pk in seen if pk > last - LOOK_BACK}
        time.sleep(LOOK_EVERY_SECONDS)


def wait_for_all(execution_ids: Collection[UUID]) -> Iterator[list[Execution]]:
    """Yield batches of executions as they end, until all have ended."""
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
