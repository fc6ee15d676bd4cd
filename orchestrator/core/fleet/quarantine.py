"""Suspects, executions that have cost two workers, run alone: one at a time, on an empty worker.

The action of a suspect may have killed its workers. Placed like any other, it could take down what
runs beside it, and copies of it the whole fleet. So one suspect at a time gets its turn: a worker
gets nothing more until it is empty, runs the suspect, and only then gets other work again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from orchestrator.core import queue_terms
from orchestrator.core.models import Execution
from orchestrator.core.models.execution_sets import DISPATCHED
from orchestrator.core.queue_terms import QueueTerms

SOON = timedelta(seconds=2)
"""No worker is kept empty for longer than this because of a retry that is not due yet."""


@dataclass(frozen=True)
class Suspects:
    """The suspects of an installation, as they were at one look."""

    workers: frozenset[int] = frozenset()
    """Workers that hold a suspect now: while there is one, no other suspect gets a turn."""
    waiting: Sequence[Execution] = ()
    """May have the next turn: the oldest first. Those of a queue that is paused, or runs as much as
    it may, are not among them: a worker would be kept empty for nothing."""


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
        closed = {name for name in queues if name not in terms or terms[name].is_paused}
        closed |= _at_their_limits({name: terms[name] for name in queues - closed})
        due = [suspect for suspect in due if suspect.queue not in closed]
    return Suspects(frozenset(id for id in held_by if id is not None), [] if held_by else due)


def _at_their_limits(terms: Mapping[str, QueueTerms]) -> set[str]:
    """Those of these queues that run as much as they may."""
    limits = {name: each.max_running for name, each in terms.items() if each.max_running}
    held = Execution.objects.held_by_queue(limits) if limits else {}
    return {name for name, limit in limits.items() if held.get(name, 0) >= limit}


def worker_for(suspect: UUID, candidates: Sequence[int]) -> int:
    """The worker that is emptied for a suspect: every executor chooses the same one."""
    return sorted(candidates)[suspect.int % len(candidates)]
