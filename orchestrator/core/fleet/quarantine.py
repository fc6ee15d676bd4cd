"""What has cost two workers runs alone, one such execution at a time, on one worker.

Its action may have killed them. Were it placed like any other, it would take what runs beside it
along, and copies of it the whole fleet. So one suspect at a time has its turn: a worker is given
nothing more until it is empty, runs the suspect, and only then has other work again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from orchestrator.core.models import Execution
from orchestrator.core.models.executions import DISPATCHED

SOON = timedelta(seconds=2)
"""No worker is kept empty for longer than this because of a retry that is not due yet."""


@dataclass(frozen=True)
class Suspects:
    """The suspects of an installation, as they were at one look."""

    workers: frozenset[int] = frozenset()
    """These hold a suspect now: nobody else has a turn."""
    waiting: Sequence[Execution] = ()
    """May have the next turn: the oldest first."""


def look(now: datetime) -> Suspects:
    """Read the suspects: hardly ever is there one, and an index has them alone."""
    suspects = Execution.objects.suspects().without_contents().with_actions()
    held_by = {suspect.worker_id for suspect in suspects if suspect.status in DISPATCHED}
    due = [
        suspect
        for suspect in suspects
        if suspect.next_retry_at is None or suspect.next_retry_at <= now + SOON
    ]
    return Suspects(frozenset(id for id in held_by if id is not None), [] if held_by else due)


def worker_for(suspect: UUID, candidates: Sequence[int]) -> int:
    """The worker that is emptied for a suspect: every executor comes to the same one."""
    return sorted(candidates)[suspect.int % len(candidates)]
