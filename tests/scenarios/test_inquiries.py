"""People answer while executors live, die and come back."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from tests.scenarios.installation import Installation

LATEST_SECONDS = 2.0
"""From the answer, or the restart, to what waited for it, by the times in the rows."""
TASKS = int(os.environ.get("TEST_INQUIRY_TASKS", "30"))
"""The whole size is 600, which takes some minutes: `TEST_INQUIRY_TASKS=600`."""
SCHEMA = {"properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}


def asking(name: str, *steps: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "namespace_name": "scenario",
        "version": "1.0.0",
        "identity_strategy": "always_unique",
        "steps": list(steps),
    }


def question(name: str, *parents: str) -> dict[str, Any]:
    return {
        "name": name, "type": "inquiry", "prompt": f"{name}?", "schema": SCHEMA,
        "dependencies": list(parents),
    }  # fmt: skip


def wait_for_task(muster: Installation, id: Any, state: str) -> Any:
    def look() -> Any:
        task = muster.client.call("task", id=id)
        return task if task.state == state else None

    return muster.wait_for(look, f"task {id} is not {state}")


def wait_for_questions(muster: Installation, number: int) -> list[Any]:
    def look() -> Any:
        found = muster.client.call("open_inquiries")
        return found if len(found) == number else None

    found: list[Any] = muster.wait_for(look, f"there are not {number} open inquiries")
    return found


def test_core_ask_completes_by_its_answer_without_any_worker(install: Callable[..., Any]) -> None:
    muster = install()
    muster.start_executor()
    muster.ready()
    id = muster.submit("core.ask", {"prompt": "Go?", "schema": SCHEMA})
    [inquiry] = wait_for_questions(muster, 1)
    assert inquiry.asked_by_execution_id == id
    muster.client.call("answer_inquiries", ids=[inquiry.id])
    ended = muster.wait_for_end(id)
    assert (ended.status, ended.reason, ended.worker_id) == ("completed", "answered", None)
    assert ended.result == {"approved": True}
    assert muster.story(id) == ["wait", "answer"]
    (answered_at,) = muster.client.call("answered_at", ids=[inquiry.id])
    assert (ended.ended_at - answered_at).total_seconds() < LATEST_SECONDS


def test_core_ask_keeps_its_deadline_without_any_worker(install: Callable[..., Any]) -> None:
    muster = install()
    muster.start_executor()
    muster.ready()
    id = muster.submit("core.ask", {"prompt": "Go?", "ttl_seconds": 2})
    ended = muster.wait_for_end(id)
    assert (ended.status, ended.reason) == ("failed", "inquiry_timed_out")
    assert ended.ended_at <= ended.deadline_at


def test_task_goes_on_when_its_executor_was_killed_before_it_heard_the_answer(
    install: Callable[..., Any],
) -> None:
    muster = install()
    executor = muster.start_executor("first")
    muster.start_worker("w1")
    muster.ready()
    after = {"name": "after", "action": "core.echo", "dependencies": ["ask"]}
    task = muster.client.call("request_task_of", definition=asking("one", question("ask"), after))
    [inquiry] = wait_for_questions(muster, 1)
    executor.kill()
    muster.client.call("answer_inquiries", ids=[inquiry.id])
    assert muster.client.call("task", id=task).state == "steps_in_process"
    muster.start_executor("second")
    muster.ready()
    restarted_at = datetime.now(UTC)
    wait_for_task(muster, task, "complete")
    resumed = muster.wait_for_end(inquiry.asked_by_execution_id)
    assert (resumed.ended_at - restarted_at).total_seconds() < LATEST_SECONDS


def test_action_asks_with_the_token_that_its_worker_made(shared: Installation) -> None:
    """The API's SECRET_KEY is not that of the worker, as wherever they have hosts of their own."""
    url = shared.serve(SECRET_KEY="only the API has this key " * 3)

    def is_live() -> bool:
        try:
            return httpx.get(f"{url}/api/v1/health/live", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False

    shared.wait_for(is_live, "the API does not listen")
    id = shared.submit("scenario.ask", {"url": url})
    ended = shared.wait_for_end(id)
    assert ended.status == "completed", ended.result
    asked = [row for row in shared.client.call("open_inquiries") if row.prompt == "By token?"]
    assert [row.asked_by_execution_id for row in asked] == [id]


@pytest.mark.slow
def test_two_branches_answered_ten_milliseconds_apart_never_leave_a_task_stuck(
    install: Callable[..., Any],
) -> None:
    muster = install()
    muster.start_executor("first")
    muster.start_executor("second")
    muster.start_worker("w1", pool="threads", concurrency=4)
    muster.ready()
    join = {"name": "join", "action": "core.noop", "dependencies": ["left", "right"]}
    definition = asking("two", question("left"), question("right"), join)
    tasks = [muster.client.call("request_task_of", definition=definition) for _ in range(TASKS)]
    inquiries = wait_for_questions(muster, 2 * TASKS)
    ids = [each.id for each in inquiries]
    muster.client.call("answer_inquiries", ids=ids, pause_seconds=0.01)
    for task in tasks:
        assert wait_for_task(muster, task, "complete").steps["join"].state == "complete"
