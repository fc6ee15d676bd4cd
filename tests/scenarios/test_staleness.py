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


def wait_for_state(muster: Installation, id: UUID, state: str) -> None:
    def look() -> bool:
        task: SimpleNamespace = muster.client.call("task", id=id)
        return bool(task.state == state)

    muster.wait_for(look, f"the task is not {state}")


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
