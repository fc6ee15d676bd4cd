"""Investigations and analytics through the API and the commands: both say the same."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from orchestrator.core import clock, investigations
from orchestrator.core.models import DLQEntry, InvestigationQueue
from orchestrator.core.states import ExecutionStatus
from orchestrator.workflows import engine, snapshots
from orchestrator.workflows.models import StepExecution, Task
from orchestrator.workflows.states import StepState, TaskState
from tests import commands
from tests.commands import items
from tests.core.api.client import Caller, pointers
from tests.factories import (
    make_dlq_entry,
    make_execution,
    make_step,
    make_task,
    make_template,
    make_worker,
)

pytestmark = pytest.mark.usefixtures("database", "sent")

Reason = DLQEntry.Reason

dlq, of_task = commands.of("dlq"), commands.of("task")


def stuck(minutes: float = 31, **values: Any) -> Task:
    """A task that has been running for so long, by the database's clock."""
    since = clock.now() - timedelta(minutes=minutes)
    return make_task(TaskState.STEPS_IN_PROCESS, clock_started_at=since, created_at=since, **values)


def opened(reason: Reason, *, minutes_ago: float, task: Task | None = None) -> DLQEntry:
    at = clock.now() - timedelta(minutes=minutes_ago)
    about = investigations.of_subject(*snapshots.subjects([task], now=at)) if task else {}
    return investigations.keep([DLQEntry(dlq_reason=reason, dlq_timestamp=at, **about)])[0]


# --- entries of tasks ----------------------------------------------------------------------------


def test_entries_of_a_task(caller: Caller) -> None:
    task, other = stuck(), stuck()
    engine.detect_stale(clock.now())
    (listed,) = caller.get(f"/dlq/task/{task.pk}").json()["items"]
    assert (listed["task_uuid"], listed["dlq_reason"]) == (str(task.pk), "staleness_timeout")
    (summary,) = caller.get("/dlq", task_uuid=task.pk).json()["items"]
    assert summary.items() <= listed.items()
    assert caller.get("/dlq", dlq_reason="staleness_timeout", limit=1).json()["next"]
    assert caller.get(f"/dlq/entry/{listed['dlq_entry_uuid']}").json() == listed
    assert listed["task_snapshot"]["task_uuid"] == str(task.pk)
    caller.patch(f"/dlq/entry/{listed['dlq_entry_uuid']}", {"resolution_status": "cancelled"})
    assert (
        dlq.document("list", "--task", str(task.pk)[:30])["items"][0]["dlq_entry_uuid"]
        == (listed["dlq_entry_uuid"])
    )
    assert caller.get(f"/dlq/task/{uuid4()}").status_code == 404
    assert caller.get(f"/dlq/task/{other.pk}").json()["items"][0]["resolution_status"] == "pending"
    assert "No task has an id" in dlq.refused("list", "--task", "ffffffff")


def test_manual_entry_for_a_task_changes_nothing_of_it(caller: Caller) -> None:
    task = make_task(TaskState.STEPS_IN_PROCESS)
    make_step(StepState.IN_PROGRESS, task=task)
    before = Task.objects.filter(pk=task.pk).values().get()
    body = {"task_uuid": str(task.pk), "detail": "looks odd"}
    entry = caller.post("/dlq", body).json()
    assert (entry["dlq_reason"], entry["original_state"]) == ("manual_dlq", "steps_in_process")
    assert [step["name"] for step in entry["task_snapshot"]["steps"]] == ["wash"]
    assert Task.objects.filter(pk=task.pk).values().get() == before
    again = caller.post("/dlq", body)
    assert (again.status_code, again.json()["type"]) == (409, "urn:muster:problem:already-open")
    assert pointers(caller.post("/dlq", {"detail": "d"})) == [""]
    both = body | {"execution_id": str(make_execution().pk)}
    assert pointers(caller.post("/dlq", both)) == [""]
    nobody = caller.post("/dlq", {"task_uuid": str(uuid4()), "detail": "d"})
    assert pointers(nobody) == ["/task_uuid"]
    complaint = dlq.refused("open", "--task", str(task.pk), "--detail", "d")
    assert "There is a pending entry for task" in complaint
    assert dlq.document("open", "--task", str(stuck().pk), "--detail", "d")["subject_id"]


# --- reports -------------------------------------------------------------------------------------


def test_stats(caller: Caller) -> None:
    assert caller.get("/dlq/stats").json() == {"items": []}
    assert dlq.run("stats") == "No DLQ entry.\n"
    entries = [opened(Reason.QUEUE_TTL_EXPIRED, minutes_ago=n) for n in (50, 30, 20, 10)]
    opened(Reason.MANUAL_DLQ, minutes_ago=1)
    at = entries[0].dlq_timestamp
    for entry, resolution in zip(entries, DLQEntry.CLOSINGS, strict=False):
        investigations.close(
            entry.dlq_entry_uuid,
            resolution=resolution,
            now=entry.dlq_timestamp + timedelta(minutes=6),
            actor="ada",
        )
    manual, expired = caller.get("/dlq/stats").json()["items"]
    assert manual["avg_resolution_time_minutes"] is None
    assert (manual["total_entries"], manual["pending"]) == (1, 1)
    assert expired.pop("avg_resolution_time_minutes") == pytest.approx(6, abs=0.01)
    assert expired.pop("oldest_entry").startswith(f"{at:%Y-%m-%dT%H:%M:%S}")
    assert expired.pop("newest_entry") > "2026"
    assert expired == {
        "dlq_reason": "queue_ttl_expired",
        "total_entries": 4,
        "pending": 1,
        "manually_resolved": 1,
        "permanent_failures": 1,
        "cancelled": 1,
    }
    assert [row["total_entries"] for row in items("dlq", "stats")] == [1, 4]
    assert max(map(len, dlq.run("stats").splitlines())) <= 100


def test_each_reason_has_its_base() -> None:
    bases = dict.fromkeys(Reason, 0.0) | {
        Reason.DEPENDENCY_CYCLE_DETECTED: 1000,
        Reason.MAX_RETRIES_EXCEEDED: 500,
        Reason.POISON: 500,
        Reason.STALENESS_TIMEOUT: 100,
        Reason.SENSOR_FAILING: 100,
        Reason.RULE_FAILING: 100,
        Reason.WORKER_UNAVAILABLE: 50,
        Reason.MANUAL_DLQ: 10,
    }
    for reason in bases:
        opened(reason, minutes_ago=5)
    scores = dict(InvestigationQueue.objects.values_list("dlq_reason", "priority_score"))
    assert scores == pytest.approx({reason: base + 5 for reason, base in bases.items()}, abs=0.5)


def test_execution_counts_by_its_priority_and_never_less_than_for_want_of_a_worker() -> None:
    now = clock.now()
    for priority in (-100, 0, 100):
        execution = make_execution(priority=priority)
        for reason in (Reason.QUEUE_TTL_EXPIRED, Reason.MANUAL_DLQ):
            make_dlq_entry(about=execution, dlq_reason=reason, now=now)
    opened(Reason.QUEUE_TTL_EXPIRED, minutes_ago=0)
    make_dlq_entry(subject_kind="execution", subject_id=uuid4(), now=now)  # it was pruned
    rows = InvestigationQueue.objects.values_list("dlq_reason", "priority_score")
    assert [(reason, round(score)) for reason, score in rows] == [
        ("queue_ttl_expired", 150),
        ("manual_dlq", 110),
        ("queue_ttl_expired", 50),
        ("queue_ttl_expired", 50),
        ("manual_dlq", 10),
        ("queue_ttl_expired", 0),
        ("queue_ttl_expired", -50),
        ("manual_dlq", -90),
    ]


def test_investigation_queue_is_ordered_by_base_and_age(caller: Caller) -> None:
    bases = {
        Reason.DEPENDENCY_CYCLE_DETECTED: 1000,
        Reason.MAX_RETRIES_EXCEEDED: 500,
        Reason.STALENESS_TIMEOUT: 100,
        Reason.WORKER_UNAVAILABLE: 50,
        Reason.MANUAL_DLQ: 10,
        Reason.MESSAGE_INVALID: 0,
    }
    for reason in reversed(bases):
        opened(reason, minutes_ago=5)
    task = stuck()
    old = opened(Reason.MANUAL_DLQ, minutes_ago=700, task=task)
    ancient = opened(Reason.MESSAGE_INVALID, minutes_ago=1_000_000)
    closed = opened(Reason.MANUAL_DLQ, minutes_ago=9)
    investigations.close(
        closed.dlq_entry_uuid,
        resolution=DLQEntry.Resolution.CANCELLED,
        now=clock.now(),
        actor="ada",
    )
    found = caller.get("/dlq/investigation-queue").json()["items"]
    assert found[0]["dlq_entry_uuid"] == str(ancient.dlq_entry_uuid)
    assert found[0]["priority_score"] == 10_000
    assert [row["dlq_reason"] for row in found[1:]] == [
        "dependency_cycle_detected",
        "manual_dlq",
        "max_retries_exceeded",
        "staleness_timeout",
        "worker_unavailable",
        "manual_dlq",
        "message_invalid",
    ]
    assert found[1]["priority_score"] == pytest.approx(1_005, abs=0.5)
    assert found[2]["dlq_entry_uuid"] == str(old.dlq_entry_uuid)
    assert (found[2]["task_uuid"], found[2]["subject_name"]) == (str(task.pk), task.template.ref)
    template = task.template
    names = template.namespace, template.name
    assert (found[2]["namespace_name"], found[2]["task_name"]) == names
    assert (found[1]["namespace_name"], found[1]["task_name"]) == (None, None)
    row = InvestigationQueue.objects.get(dlq_entry_uuid=old.dlq_entry_uuid)
    assert row.task_uuid == task.pk
    assert found[2]["minutes_in_dlq"] == pytest.approx(700, abs=0.5)
    assert len(caller.get("/dlq/investigation-queue", limit=2).json()["items"]) == 2
    assert len(items("dlq", "queue", "--limit", "3")) == 3
    table = dlq.run("queue")
    assert "10,000" in table
    assert str(task.pk) in table.split()


def test_staleness(caller: Caller) -> None:
    assert of_task.run("staleness") == "No open task.\n"
    warning, stale = stuck(25).pk, stuck(45).pk
    make_task(TaskState.COMPLETE)
    found = caller.get("/dlq/staleness").json()["items"]
    assert [(row["task_uuid"], row["health_status"]) for row in found] == [
        (str(stale), "stale"),
        (str(warning), "warning"),
    ]
    assert found[0]["staleness_threshold_minutes"] == 30
    assert found[0]["time_in_state_minutes"] == pytest.approx(45, abs=0.5)
    assert [row["threshold_percentage"] for row in found] == pytest.approx([150, 83], abs=2)
    only = caller.get("/dlq/staleness", health_status="warning").json()["items"]
    assert [row["task_uuid"] for row in only] == [str(warning)]
    assert pointers(caller.get("/dlq/staleness", health_status="ill")) == ["?health_status"]
    assert pointers(caller.get("/dlq/staleness", limit=0)) == ["?limit"]
    assert [row["task_uuid"] for row in items("task", "staleness", "--health", "stale")] == [
        str(stale)
    ]
    table = of_task.run("staleness")
    assert "150 %" in table
    assert all(len(word) < 40 for word in table.split())


def test_dry_run_says_what_the_next_detection_does_and_does_nothing(caller: Caller) -> None:
    stale, _ = stuck(45), stuck(5)
    told = [
        caller.get("/dlq/staleness/dry-run").json()["items"],
        items("task", "staleness", "--dry-run"),
    ]
    for (found,) in told:
        assert found["task_uuid"] == str(stale.pk)
        assert found["detail"].startswith("steps_in_process for 45.0 min, allowed are 30")
        assert found["overdue_minutes"] == pytest.approx(15, abs=0.5)
        assert found["action_taken"] == "would_transition_to_dlq_and_error"
        assert (found["moved_to_dlq"], found["transition_success"]) == (False, False)
        assert (found["namespace_name"], found["task_name"]) == ("tests", stale.template.name)
        assert (found["limit_name"], found["staleness_threshold_minutes"]) == (
            "steps_in_process", 30,
        )  # fmt: skip
    table = of_task.run("staleness", "--dry-run")
    assert str(stale.pk) in table.split()
    assert "open an entry, move it to error" in table
    assert Task.objects.get(pk=stale.pk).state == "steps_in_process"
    assert not DLQEntry.objects.exists()
    stale.delete()
    assert "nothing would be done" in of_task.run("staleness", "--dry-run")


def test_detection_by_hand_says_what_it_did_with_each_task() -> None:
    stale, _ = stuck(45), stuck(5)
    (found,) = items("task", "detect-stale")
    assert found["task_uuid"] == str(stale.pk)
    assert found["overdue_minutes"] == pytest.approx(15, abs=0.5)
    assert found["action_taken"] == "transitioned_to_dlq_and_error"
    assert (found["moved_to_dlq"], found["transition_success"]) == (True, True)
    assert Task.objects.get(pk=stale.pk).state == "error"
    assert DLQEntry.objects.get().subject_id == stale.pk
    assert "nothing was done" in of_task.run("detect-stale")
    second = stuck(45)
    table = of_task.run("detect-stale")
    assert str(second.pk) in table.split()
    assert "entry opened, moved to error" in table


# --- analytics -----------------------------------------------------------------------------------


def ran(step_name: str, task: Task, *seconds: float, fails: int = 0) -> None:
    """A step with an execution for each of these durations, of which the first ones failed."""
    now, worker = clock.now(), make_worker(now=clock.now())
    state = StepState.ERROR if fails == len(seconds) else StepState.COMPLETE
    step = make_step(state, task=task, name=step_name, now=now, attempts=len(seconds))
    for number, duration in enumerate(seconds):
        execution = make_execution(
            ExecutionStatus.FAILED if number < fails else ExecutionStatus.COMPLETED,
            worker=worker,
            now=now,
            started_at=now - timedelta(seconds=duration),
        )
        StepExecution.objects.create(step=step, execution=execution, fence=number + 1)


def test_performance_and_bottlenecks(caller: Caller) -> None:
    now = clock.now()
    template = make_template("order")
    for seconds in range(1, 21):
        task = make_task(
            TaskState.COMPLETE,
            template=template,
            now=now,
            created_at=now - timedelta(seconds=100 + seconds),
            ended_at=now - timedelta(seconds=100),
        )
        ran("pay", task, 5, 1, fails=1 if seconds > 5 else 0)
        ran("ship", task, seconds)
    failed = make_task(TaskState.ERROR, template=template, now=now)
    ran("ship", failed, 1, fails=1)
    make_task(template=make_template("other"), now=now)
    make_task(TaskState.COMPLETE, template=template, now=now, created_at=now - timedelta(hours=30))
    order, other = caller.get("/analytics/performance").json()["items"]
    assert (other["name"], other["tasks"], other["steps"]) == ("other", 1, [])
    assert other["duration_p50_seconds"] is None
    assert (order["tasks"], order["completed"], order["failed"]) == (21, 20, 1)
    assert order["failure_rate"] == pytest.approx(1 / 21)
    assert order["duration_p50_seconds"] == pytest.approx(10, abs=0.01)
    assert order["duration_p95_seconds"] == pytest.approx(19, abs=0.01)
    pay, ship = order["steps"]
    assert (pay["steps"], pay["retries"], pay["executions"]) == (20, 20, 40)
    assert (pay["failed_executions"], pay["failure_rate"]) == (15, 15 / 40)
    assert pay["duration_p50_seconds"] == pytest.approx(1, abs=0.01)
    assert (ship["steps"], ship["completed"], ship["failed"]) == (21, 20, 1)
    assert ship["duration_p95_seconds"] == pytest.approx(19, abs=0.01)
    found = caller.get("/analytics/bottlenecks").json()
    assert [row["step"] for row in found["slowest"]] == ["ship", "pay"]
    assert [row["step"] for row in found["most_retried"]] == ["pay"]
    assert [row["step"] for row in found["most_failing"]] == ["pay", "ship"]
    assert (found["slowest"][0]["template"], found["slowest"][0]["version"]) == ("order", "1.0.0")
    assert len(caller.get("/analytics/bottlenecks", limit=1).json()["slowest"]) == 1
    longer = caller.get("/analytics/performance", hours=48, name="order").json()["items"]
    assert [row["tasks"] for row in longer] == [22]
    assert caller.get("/analytics/performance", namespace="nowhere").json()["items"] == []
    assert pointers(caller.get("/analytics/performance", hours=0)) == ["?hours"]
