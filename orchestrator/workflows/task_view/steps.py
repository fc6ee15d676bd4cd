"""Steps and what they wait for, for a page of them at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Count, F, Window
from django.db.models.functions import RowNumber

from orchestrator.core.redaction import redacted
from orchestrator.workflows.models import Step, StepDependency, Task
from orchestrator.workflows.states import StepState

NAMED_LIMIT = 5
"""A step after a batch may wait for thousands: so many are named."""

MESSAGE_CHARACTERS = 200


@dataclass(frozen=True, kw_only=True)
class WaitsFor:
    """A parent that is not satisfied."""

    name: str
    state: StepState


@dataclass(frozen=True, kw_only=True)
class StepView:
    """A step, and what becomes of it next."""

    step: Step
    waits_for: Sequence[WaitsFor]
    """The first few of the parents that it waits for."""
    waits_for_count: int
    retry_eligible: bool
    ready_for_execution: bool
    """Whether `advance` would enqueue it now."""
    message: str = ""
    """Why its last attempt failed, if it is in error."""

    @property
    def dependencies_satisfied(self) -> bool:
        return not self.waits_for_count

    @property
    def blocked_by(self) -> str:
        """What keeps it, in words; empty if it goes on by itself, or is over."""
        if self.step.is_terminal:
            return ""
        if self.waits_for_count:
            named = ", ".join(f"{each.name} ({each.state})" for each in self.waits_for)
            more = self.waits_for_count - len(self.waits_for)
            return f"{named} and {more:,} more" if more else named
        if self.step.state == StepState.ERROR:
            why = "it failed for good"
            if self.step.attempts >= self.step.max_attempts:
                why = "no attempts left"
            elif not self.step.retryable:
                why = "it is not retryable"
            return f"{why}: {self.message}" if self.message else why
        if self.step.state == StepState.WAITING_FOR_RETRY and not self.ready_for_execution:
            return "its backoff"
        return ""


def views(steps: Sequence[Step], *, now: datetime) -> list[StepView]:
    """Each of these as it is now, in three queries however many they are."""
    ids = [step.pk for step in steps]
    ready = set(Step.objects.ready(now).filter(pk__in=ids).values_list("pk", flat=True))
    waits, counts = _unsatisfied(ids)
    messages = _messages([step.pk for step in steps if step.state == StepState.ERROR])
    return [
        StepView(
            step=step,
            waits_for=waits.get(step.pk, ()),
            waits_for_count=counts.get(step.pk, 0),
            retry_eligible=step.retry_eligible(now),
            ready_for_execution=step.pk in ready,
            message=messages.get(step.pk, ""),
        )
        for step in steps
    ]


def counts(task_ids: Iterable[UUID]) -> Mapping[UUID, Counter[StepState]]:
    """How many steps of each of these tasks are in which state, in one query."""
    found: dict[UUID, Counter[StepState]] = {id: Counter() for id in task_ids}
    rows = Step.objects.filter(task_id__in=list(found)).order_by().values_list("task_id", "state")
    for id, state, count in rows.annotate(Count("pk")):
        found[id][StepState(state)] = count
    return found


def standing_in_the_way(task: Task) -> list[Step]:
    """The steps that failed and keep the task from its end, a few of them, the oldest first."""
    failed = task.steps.filter(state=StepState.ERROR).defer("result")
    return list(failed.order_by("pk")[:NAMED_LIMIT])


def _messages(ids: Sequence[UUID]) -> dict[UUID, str]:
    """What the errors of these steps say, cut to a line."""
    if not ids:
        return {}
    found = Step.objects.filter(pk__in=ids).values_list("pk", "error__message")
    return {
        id: " ".join(redacted(message).split())[:MESSAGE_CHARACTERS]
        for id, message in found
        if isinstance(message, str)
    }


def _unsatisfied(
    ids: Sequence[UUID],
) -> tuple[dict[UUID, list[WaitsFor]], dict[UUID, int]]:
    """The first unsatisfied parents of each step, and how many there are."""
    edges = StepDependency.objects.unsatisfied().filter(child_id__in=ids)
    rows = edges.annotate(
        place=Window(RowNumber(), partition_by=F("child_id"), order_by=F("parent_id").asc()),
        total=Window(Count("pk"), partition_by=F("child_id")),
    ).filter(place__lte=NAMED_LIMIT)
    waits: dict[UUID, list[WaitsFor]] = {}
    totals: dict[UUID, int] = {}
    for child, name, state, total in rows.order_by("place").values_list(
        "child_id", "parent__name", "parent__state", "total"
    ):
        waits.setdefault(child, []).append(WaitsFor(name=name, state=StepState(state)))
        totals[child] = total
    return waits, totals
