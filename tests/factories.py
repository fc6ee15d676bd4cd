"""Rows as they would be had everything before them happened: consistent times, true constraints."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from orchestrator.core.models import Action, DLQEntry, Execution, Pack, Worker
from orchestrator.core.reasons import Reason
from orchestrator.core.states import TERMINAL, ExecutionStatus
from orchestrator.workflows.models import Step, Task, TaskTemplate
from orchestrator.workflows.states import STEPS, TASKS, StepState, TaskState

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)

S = ExecutionStatus
BEFORE_DISPATCH = {S.REQUESTED, S.SCHEDULING}
BEFORE_START = {*BEFORE_DISPATCH, S.SCHEDULED}


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


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
    if values.get("status") == Worker.Status.INACTIVE:
        known["gone_at"] = now
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


def make_dlq_entry(
    *, about: Execution | None = None, now: datetime = NOW, **values: Any
) -> DLQEntry:
    """What is to be looked into, about this execution or about nothing that is known."""
    known: dict[str, Any] = {"dlq_reason": "queue_ttl_expired", "dlq_timestamp": now}
    if about is not None:
        known |= {"subject_kind": "execution", "subject_id": about.pk}
    return DLQEntry.objects.create(**known | values)


def make_template(name: str = "tidy", **values: Any) -> TaskTemplate:
    """The template of this name and version, made with these values if there is none yet.

    It is made as given: whoever wants it checked installs it.
    """
    definition = {"name": name, "namespace_name": "tests", "version": "1.0.0", "steps": []}
    known: dict[str, Any] = {"definition": definition, "digest": "0" * 64, "installed_at": NOW}
    version = values.pop("version", "1.0.0")
    template, _ = TaskTemplate.objects.get_or_create(
        namespace="tests", name=name, version=version, defaults=known | values
    )
    return template


def make_task(
    state: TaskState | str = TaskState.PENDING, *, now: datetime = NOW, **values: Any
) -> Task:
    """A task that came into `state` a moment before `now`."""
    state, entered_at = TaskState(state), now - timedelta(seconds=2)
    known: dict[str, Any] = {
        "state_entered_at": entered_at,
        "clock_started_at": entered_at,
        "created_at": now - timedelta(seconds=5),
        "ended_at": entered_at if state in TASKS.ended else None,
    }
    template = values.pop("template", None) or make_template()
    return Task.objects.create(template=template, state=state.value, **known | values)


def make_step(
    state: StepState | str = StepState.PENDING,
    *,
    task: Task | None = None,
    name: str = "wash",
    now: datetime = NOW,
    **values: Any,
) -> Step:
    """A step that came into `state` a moment before `now`."""
    state, entered_at = StepState(state), now - timedelta(seconds=2)
    known: dict[str, Any] = {
        "template_step": name,
        "state_entered_at": entered_at,
        "ended_at": entered_at if state in STEPS.ended else None,
    }
    if state is StepState.WAITING_FOR_RETRY:
        known |= {"next_retry_at": now + timedelta(seconds=1), "attempts": 1}
    if state is StepState.ERROR:
        known |= {"attempts": 3, "last_failure_at": entered_at}
    return Step.objects.create(
        task=task or make_task(TaskState.STEPS_IN_PROCESS, now=now),
        name=name,
        state=state.value,
        **known | values,
    )
