"""Policies, work that they concern, and workers that take it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from orchestrator.core import executions
from orchestrator.core.executions import Ended
from orchestrator.core.fleet import Placement
from orchestrator.core.models import Execution
from orchestrator.core.reasons import Reason
from orchestrator.core.state_machine import Move
from orchestrator.policies import changes, definitions, maintenance
from orchestrator.policies.models import Policy
from tests.factories import NOW, make_execution


def make_policy(ref: str = "limit", now: datetime = NOW, **values: Any) -> Policy:
    """The policy with this definition: of concurrency and of everything, unless it says so."""
    known = {"ref": ref, "kind": "concurrency", "scope": "global", "limit": 1, **values}
    source = definitions.source_of(known, name=ref)
    definitions.check_document(source)
    assert source.problems == []
    return changes.create(definitions.of_document(known), now=now)


def waiting(number: int = 1, **values: Any) -> list[Execution]:
    """Executions that were accepted."""
    return [make_execution(**values) for _ in range(number)]


def look(now: datetime = NOW, limit: int = 500) -> None:
    """An executor with a new view of the fleet looks at the backlog."""
    executions.schedule_backlog(placement=Placement(), now=now, actor="executor", limit=limit)


def started() -> list[Execution]:
    """What workers hold, in the order of the rows."""
    rows = Execution.objects.filter(status__in=("scheduled", "running", "canceling"))
    return list(rows.order_by("pk"))


def claim(row: Execution, now: datetime = NOW) -> None:
    """A worker starts it."""
    fresh = Execution.objects.get(pk=row.pk)
    values = {"run_deadline_at": now, "started_at": now}
    move = Move(fresh.pk, fresh.status, fresh.attempt, values)
    assert Execution.objects.transition_many("claim", [move], now=now, actor="w1")


def come_back(row: Execution, *, reason: str, now: datetime = NOW) -> None:
    """What a worker holds is in the backlog again."""
    fresh = Execution.objects.get(pk=row.pk)
    move = Move(fresh.pk, fresh.status, fresh.attempt)
    assert Execution.objects.transition_many(
        "give_back", [move], now=now, actor="w1", reason=reason
    )


def end(*rows: Execution, now: datetime = NOW, is_told: bool = True) -> int:
    """These were run and have ended; returns how many were made due by that, if anybody is told."""
    for row in rows:
        claim(row, now=now)
        claimed = Execution.objects.select_related("action").get(pk=row.pk)
        executions.finish([Ended(claimed, Reason.SUCCEEDED, {})], now=now, actor="w1")
    return executions.note_ended([row.pk for row in rows], now=now) if is_told else 0


def tick(now: datetime = NOW) -> dict[str, int]:
    """Maintenance comes by."""
    summary: dict[str, int] = maintenance.wake_policies(now=now)
    return summary
