"""Rows as they would be had everything before them happened: consistent times, true constraints."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from orchestrator.models import Action, Execution, Pack, Worker
from orchestrator.reasons import Reason
from orchestrator.state_machine import TERMINAL, ExecutionStatus

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)

S = ExecutionStatus
BEFORE_DISPATCH = {S.REQUESTED, S.SCHEDULING}
BEFORE_START = {*BEFORE_DISPATCH, S.SCHEDULED}


def make_action(ref: str = "core.echo", **values: Any) -> Action:
    """The action of this ref, made with these values if there is none yet."""
    pack, _ = Pack.objects.get_or_create(
        name=ref.partition(".")[0],
        defaults={"version": "1.0.0", "path": "/nowhere", "installed_at": NOW},
    )
    known: dict[str, Any] = {"runtime": "python", "entry_point": "actions:echo", "updated_at": NOW}
    action, _ = Action.objects.get_or_create(ref=ref, defaults={"pack": pack, **known, **values})
    return action


def make_worker(name: str = "w1", *, now: datetime = NOW, **values: Any) -> Worker:
    """The worker of this name; active with a heartbeat of `now` if it has to be made."""
    known: dict[str, Any] = {
        "incarnation": 1,
        "status": Worker.Status.ACTIVE,
        "capacity": 4,
        "runtimes": ["python", "shell"],
        "registered_at": now,
        "heartbeat_at": now,
    }
    worker, _ = Worker.objects.get_or_create(name=name, defaults=known | values)
    return worker


def make_execution(
    status: ExecutionStatus | str = S.REQUESTED,
    *,
    now: datetime = NOW,
    action: Action | None = None,
    worker: Worker | None = None,
    **values: Any,
) -> Execution:
    """An execution that came into `status` a moment before `now`, its worker included."""
    status = S(status)
    action = action or make_action()
    created_at = values.pop("created_at", now - timedelta(seconds=5))
    known: dict[str, Any] = {
        "action_ref": action.ref,
        "timeout_seconds": 60,
        "created_at": created_at,
        "deadline_at": created_at + timedelta(days=1),
        "worker": worker,
    }
    if status is S.SCHEDULING:
        known |= {"wait_reason": "no workers available", "next_retry_at": now}
    if status not in BEFORE_DISPATCH:
        known |= {
            "worker": worker or make_worker(now=now),
            "attempt": 1,
            "scheduled_at": now - timedelta(seconds=3),
            "start_by": now + timedelta(seconds=307),
        }
    if status not in BEFORE_START:
        known |= {
            "worker_incarnation": known["worker"].incarnation,
            "started_at": now - timedelta(seconds=2),
            "run_deadline_at": now + timedelta(seconds=68),
        }
    if status is S.CANCELING:
        known |= {"cancel_requested_at": now - timedelta(seconds=1)}
    if status in TERMINAL:
        reason = Reason.SUCCEEDED if status is S.COMPLETED else Reason.WORKER_LOST
        known |= {"ended_at": now, "reason": reason.value}
    return Execution.objects.create(action=action, status=status.value, **known | values)
