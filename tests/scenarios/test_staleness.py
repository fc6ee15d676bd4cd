"""A task that comes to no end: found, investigated once, looked at and closed by an operator."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from tests.scenarios.installation import Installation

SOON = {"staleness_interval_seconds": 1, "no_worker_grace_seconds": 0.1}


def template(name: str, action: str, parameters: dict[str, Any], **values: Any) -> dict[str, Any]:
    """A template of one step."""
    step = {"name": "only", "type": "standard", "action": action, "parameters": parameters}
    step["retry"] = {"max_attempts": 1}
    return {
        "name": name, "namespace_name": "scenario", "version": "1.0.0", "steps": [step], **values
    }  # fmt: skip


def note(muster: Installation, name: str, *, seconds: float = 0) -> dict[str, Any]:
    """A step that writes to the journal."""
    parameters = {"journal": str(muster.journal.path), "label": name, "seconds": seconds}
    return {
        "name": name, "type": "standard", "action": "scenario.note", "parameters": parameters,
        "retry": {"max_attempts": 1},
    }  # fmt: skip


def wait_for_state(muster: Installation, id: UUID, state: str) -> None:
    def look() -> bool:
        task: SimpleNamespace = muster.client.call("task", id=id)
        return bool(task.state == state)

    muster.wait_for(look, f"the task is not {state}")


@pytest.mark.slow
def test_stale_task_is_investigated_once_whoever_looks_for_it(
    install: Callable[..., Any],
) -> None:
    muster: Installation = install(**SOON)
    muster.start_executor("executor-1")
    muster.start_executor("executor-2")
    muster.start_worker("w1")
    muster.ready()
    parameters = {"journal": str(muster.journal.path), "label": "long", "seconds": 300}
    lifecycle = {"max_steps_in_process_minutes": 0.05}
    id = muster.client.call(
        "request_task_of",
        definition=template("long", "scenario.note", parameters, lifecycle=lifecycle),
    )
    muster.wait_for_start("long")

    wait_for_state(muster, id, "error")

    [entry] = muster.dlq_entries()
    assert (entry.subject_id, entry.dlq_reason) == (id, "staleness_timeout")
    assert entry.original_state == "steps_in_process"
    snapshot = entry.snapshot
    assert (snapshot["threshold_minutes"], snapshot["template"]) == (0.05, "scenario/long/1.0.0")
    [step] = snapshot["steps"]
    assert (step["name"], step["attempts"]) == ("only", 1)
    [queued] = json.loads(muster.command("dlq", "queue", "--json"))["items"]
    assert queued["dlq_entry_uuid"] == str(entry.dlq_entry_uuid)
    muster.command(
        "dlq", "update", queued["dlq_entry_uuid"],
        "--resolution-status", "permanently_failed", "--note", "it never ends",
    )  # fmt: skip
    [entry] = muster.dlq_entries()
    assert (entry.resolution_status, entry.notes[0]["text"]) == (
        "permanently_failed",
        "it never ends",
    )
    assert muster.client.call("task", id=id).state == "error"  # the entry changed nothing of it
    [running] = muster.executions()
    muster.cancel(running)
    muster.wait_for_end(running)


@pytest.mark.slow
def test_task_that_waits_too_long_for_a_dependency_is_repaired_and_goes_on(
    install: Callable[..., Any],
) -> None:
    muster: Installation = install(**SOON)
    executor = muster.start_executor()
    muster.start_worker("w1")
    muster.ready()
    definition = {
        "name": "waits", "namespace_name": "scenario", "version": "1.0.0",
        "lifecycle": {"max_waiting_for_dependencies_minutes": 0.05},
        "steps": [note(muster, "quick"), note(muster, "slow", seconds=300),
                  note(muster, "last") | {"dependencies": ["quick", "slow"]}],
    }  # fmt: skip
    id = muster.client.call("request_task_of", definition=definition)
    muster.wait_for_start("slow")

    wait_for_state(muster, id, "error")

    [queued] = json.loads(muster.command("dlq", "queue", "--json"))["items"]
    assert queued["task_uuid"] == str(id)
    [entry] = muster.dlq_entries()
    assert (entry.subject_id, entry.dlq_reason) == (id, "staleness_timeout")
    assert entry.original_state == entry.snapshot["current_state"] == "waiting_for_dependencies"
    assert entry.snapshot["threshold_minutes"] == 0.05
    assert entry.snapshot["time_in_state_minutes"] >= 0.05
    states = {step["name"]: step["current_state"] for step in entry.snapshot["steps"]}
    assert states == {"quick": "complete", "slow": "in_progress", "last": "pending"}
    line = next(line for line in executor.log().splitlines() if "stale task" in line)
    assert "transitioned_to_dlq_and_error" in line
    assert str(id) in line
    listed = json.loads(muster.command("task", "steps", str(id), "--json"))["items"]
    assert {step["name"]: step["blocked_by"] for step in listed}["last"] == "slow (in_progress)"
    muster.command(
        "task", "complete-step", str(id), "slow", "--result", "{}", "--force",
        "--reason", "done by hand",
    )  # fmt: skip
    wait_for_state(muster, id, "complete")
    assert [each.label for each in muster.journal.ends()].count("last") == 1
    assert [entry.resolution_status for entry in muster.dlq_entries()] == ["pending"]
    muster.command(
        "dlq", "update", queued["dlq_entry_uuid"],
        "--resolution-status", "manually_resolved", "--note", "done by hand",
    )  # fmt: skip
    assert [entry.resolution_status for entry in muster.dlq_entries()] == ["manually_resolved"]
    for execution in muster.executions().values():
        muster.wait_for_end(execution.id)


@pytest.mark.parametrize("backend", ["embedded"], indirect=True)
def test_task_without_a_worker_is_an_investigation_of_the_fleet_and_goes_on_with_one(
    install: Callable[..., Any],
) -> None:
    muster: Installation = install(**SOON)
    muster.start_executor()
    muster.ready()
    parameters = {"journal": str(muster.journal.path)}
    definition = template("nobody", "scenario.note", parameters)
    id = muster.client.call("request_task_of", definition=definition)

    wait_for_state(muster, id, "blocked_by_failures")

    [entry] = muster.dlq_entries()
    assert (entry.subject_id, entry.dlq_reason) == (id, "worker_unavailable")
    assert entry.snapshot["steps"][0]["last_error"]["reason"] == "no_worker_available"

    muster.start_worker("w1")
    wait_for_state(muster, id, "complete")
    assert [entry.resolution_status for entry in muster.dlq_entries()] == ["pending"]
