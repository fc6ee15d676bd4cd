"""A task that takes with it each executor that advances it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.scenarios.installation import REPOSITORY, Installation
from tests.scenarios.test_staleness import template, wait_for_state

HELD = Path(__file__).parent / "held"


@pytest.mark.slow
def test_task_of_which_two_executors_died_is_left_alone_by_the_third(
    install: Callable[..., Any],
) -> None:
    muster: Installation = install()
    held = muster.directory / "held"
    environment = {"PYTHONPATH": f"{HELD}:{REPOSITORY}", "HELD": str(held)}
    muster.start_worker("w1")
    poison = request(muster, "poison")
    for name in ("executor-1", "executor-2"):
        before = taken(held)
        executor = muster.start_executor(name, **environment)
        muster.wait_for(lambda: taken(held) > before, "no executor took the task")  # noqa: B023
        executor.kill_tree()

    third = muster.start_executor("executor-3", **environment)
    muster.ready()
    beside = [request(muster, f"beside_{number}") for number in range(3)]

    for id in beside:
        wait_for_state(muster, id, "complete")
    wait_for_state(muster, poison, "error")
    assert taken(held) == 2
    [entry] = muster.dlq_entries()
    assert (entry.subject_id, entry.dlq_reason) == (poison, "poison")
    [listed] = json.loads(muster.command("dlq", "list", "--json"))["items"]
    assert (listed["dlq_reason"], listed["task_uuid"]) == ("poison", str(poison))
    assert json.loads(muster.command("task", "show", str(poison), "--json"))["is_quarantined"]

    third.kill_tree()
    muster.start_executor("executor-4")
    muster.command("task", "release", str(poison), "--reason", "what it died of is repaired")
    wait_for_state(muster, poison, "complete")


def request(muster: Installation, name: str) -> UUID:
    parameters = {"journal": str(muster.journal.path), "label": name}
    definition = template(name, "scenario.note", parameters)
    id: UUID = muster.client.call("request_task_of", definition=definition)
    return id


def taken(held: Path) -> int:
    """How often an executor has taken the task in hand."""
    return len(held.read_text().splitlines()) if held.exists() else 0
