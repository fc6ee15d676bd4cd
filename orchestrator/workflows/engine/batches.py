"""The workers of a batch that may be requested now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from orchestrator.workflows.models import Step
from orchestrator.workflows.states import StepState
from orchestrator.workflows.states.steps import IN_FLIGHT
from orchestrator.workflows.task_templates.definitions import BATCH_WORKER, BATCHABLE, FAIL_FAST


def is_worker(step: Step) -> bool:
    return step.kind == BATCH_WORKER


@dataclass
class Room:
    """The number of workers of a batch that may still be requested."""

    left: int
    stops: bool
    """It fails fast, and one has failed: none begins that has not begun."""


def rooms_of(ready: Sequence[Step]) -> dict[UUID | None, Room]:
    """The room of each batch of which a worker is ready."""
    task_ids = {step.task_id for step in ready if is_worker(step)}
    if not task_ids:
        return {}
    steps = Step.objects.filter(task_id__in=task_ids)
    batches = steps.filter(kind=BATCHABLE).values_list("pk", "batch")
    busy: Counter[UUID | None] = Counter()
    failing: set[UUID | None] = set()
    workers = steps.filter(kind=BATCH_WORKER, state__in=[*IN_FLIGHT, StepState.ERROR])
    for created_by, state in workers.values_list("created_by", "state"):
        if state == StepState.ERROR:
            failing.add(created_by)
        else:
            busy[created_by] += 1
    return {
        id: Room(
            left=batch["parallelism"] - busy[id],
            stops=batch["failure_strategy"] == FAIL_FAST and id in failing,
        )
        for id, batch in batches
        if batch
    }


def within(
    rooms: Mapping[UUID | None, Room], ready: Sequence[Step], *, ahead: Counter[UUID | None]
) -> list[Step]:
    """The ready steps to look at: of a batch, the workers for which it has room. `ahead`: by batch,
    how many more, as so many could not be requested in this turn; of thousands that cannot, each
    look so takes twice as many."""
    looked_at: Counter[UUID | None] = Counter()
    chosen = []
    for step in ready:
        room = rooms.get(step.created_by_id) if is_worker(step) else None
        if room is not None:
            batch = step.created_by_id
            is_full = room.left <= 0 or looked_at[batch] >= room.left + ahead[batch]
            if is_full or (room.stops and step.state == StepState.PENDING):
                continue
            looked_at[batch] += 1
        chosen.append(step)
    return chosen
