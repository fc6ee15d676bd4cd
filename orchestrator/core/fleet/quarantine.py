"""Suspects, executions that have cost two workers, run alone: one at a time, on an empty worker.

The action of a suspect may have killed its workers. Placed like any other, it could take down what
runs beside it, and copies of it the whole fleet. So one suspect at a time gets its turn: a worker
gets nothing more until it is empty, runs the suspect, and only then gets other work again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from orchestrator.core import queue_terms
from orchestrator.core.models import Execution
from orchestrator.core.models.executions import DISPATCHED

SOON = timedelta(seconds=2)
"""No worker is kept empty for longer than this because of a retry that is not due yet."""


@dataclass(frozen=True)
class Suspects:
    """The suspects of an installation, as they were at one look."""

    workers: frozenset[int] = frozenset()
    """Workers that hold a suspect now: while there is one, no other suspect gets a turn."""
    waiting: Sequence[Execution] = ()
    """May have the next turn: the oldest first. Those of a paused queue are not among them."""


def look(now: datetime) -> Suspects:
    """Read the suspects: there is hardly ever one, and they have an index of their own."""
    suspects = Execution.objects.suspects().without_contents().with_actions()
    held_by = {suspect.worker_id for suspect in suspects if suspect.status in DISPATCHED}
    due = [
        suspect
        for suspect in suspects
        if suspect.next_retry_at is None or suspect.next_retry_at <= now + SOON
    ]
    if queues := {suspect.queue for suspect in due if suspect.queue}:
        terms = queue_terms.queues().terms(queues)
        paused = {name for name in queues if name not in terms or terms[name].is_paused}
        due = [suspect for suspect in due if suspect.queue not in paused]
    return Suspects(frozenset(id for id in held_by if id is not None), [] if held_by else due)


def worker_for(suspect: UUID, candidates: Sequence[int]) -> int:
    """The worker that is emptied for a suspect: every executor chooses the same one."""
    return sorted(candidates)[suspect.int % len(candidates)]
