"""The example templates, run by an executor and a worker; and what an operator repairs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.scenarios.installation import Backend, Installation

ITEMS = [{"sku": "lamp", "price": 20, "count": 2}, {"sku": "bulb", "price": 3, "count": 4}]
KEYS = map("order {}".format, itertools.count(1))


@pytest.fixture(scope="module")
def muster(backend: Backend) -> Iterator[Installation]:
    """An executor and a worker, for tests that break nothing."""
    installation = Installation(backend, environment="test", staleness_interval_seconds=1)
    try:
        installation.start_executor()
        installation.start_worker("w1", pool="threads", concurrency=4)
        installation.ready()
        yield installation
    finally:
        installation.close()


def request(muster: Installation, name: str, key: str | None = None, **context: Any) -> UUID:
    id: UUID = muster.client.call("request_task", name=name, context=context, key=key)
    return id


def wait_for(muster: Installation, id: UUID, *states: str) -> Any:
    def look() -> Any:
        task = muster.client.call("task", id=id)
        return task if task.state in states else None

    return muster.wait_for(look, f"task {id} is not {' or '.join(states)}")


def order(muster: Installation, **context: Any) -> UUID:
    number = next(KEYS)
    known = {"order": number, "items": ITEMS, "card": "visa"}
    return request(muster, "order_fulfilment", number, **known | context)


def repair(muster: Installation, verb: str, step: Any, **values: Any) -> str:
    state: str = muster.client.call("repair", verb=verb, id=step.id, **values)
    return state


def test_linear_template_hands_results_on(muster: Installation) -> None:
    task = wait_for(muster, request(muster, "linear", start=5), "complete")
    assert {name: step.result for name, step in task.steps.items()} == {
        "first": {"sum": 6}, "second": {"sum": 16}, "third": {"sum": 116},
    }  # fmt: skip
    assert task.went_through[:3] == ["initializing", "enqueuing_steps", "steps_in_process"]
    assert task.went_through[-2:] == ["evaluating_results", "complete"]


def test_diamond_joins_both_branches(muster: Installation) -> None:
    task = wait_for(muster, request(muster, "diamond"), "complete")
    assert task.steps["join"].result == {"sum": 13 + 23}


def test_order_is_shipped_when_the_payment_works(muster: Installation) -> None:
    task = wait_for(muster, order(muster), "complete")
    assert task.steps["ship"].result == {"order": task.context["order"], "paid_with": "visa-52"}
    assert task.steps["wrap"].result is None
    gift = wait_for(muster, order(muster, gift=True), "complete")
    assert gift.steps["wrap"].result == {"wrapped": gift.context["order"]}


def test_same_order_twice_is_one_task(muster: Installation) -> None:
    key = next(KEYS)
    values = {"order": key, "items": ITEMS, "card": "visa"}
    first = request(muster, "order_fulfilment", key, **values)
    assert request(muster, "order_fulfilment", key, **values) == first
    wait_for(muster, first, "complete")


@pytest.mark.parametrize("verb", ["reset_for_retry", "resolve_manually", "complete_manually"])
def test_step_action_carries_an_order_with_a_failing_payment_to_complete(
    muster: Installation, verb: str, tmp_path: Path
) -> None:
    provider = tmp_path / "provider"
    stuck = wait_for(muster, order(muster, provider=str(provider)), "blocked_by_failures")
    charge = stuck.steps["charge"]
    assert (charge.state, charge.attempts) == ("error", 3)
    assert "does not answer" in charge.error["message"]
    assert stuck.steps["ship"].state == "pending"
    entries = [e for e in muster.dlq_entries() if e.subject_id == stuck.id]
    assert [entry.dlq_reason for entry in entries] == ["max_retries_exceeded"]

    if verb == "complete_manually":
        state = repair(muster, verb, charge, result={"payment": "cheque", "amount": 52})
    else:
        provider.touch()
        state = repair(muster, verb, charge)

    assert state == {"reset_for_retry": "enqueued", "resolve_manually": "resolved_manually",
                     "complete_manually": "complete"}[verb]  # fmt: skip
    done = wait_for(muster, stuck.id, "complete")
    paid_with = {"reset_for_retry": "visa-52", "resolve_manually": "by hand",
                 "complete_manually": "cheque"}  # fmt: skip
    assert done.steps["ship"].result["paid_with"] == paid_with[verb]
    # the investigation is somebody's, and stays open until they close it
    entries = [e for e in muster.dlq_entries() if e.subject_id == stuck.id]
    assert [entry.resolution_status for entry in entries] == ["pending"]


@pytest.mark.parametrize(
    ("amount", "created", "by"),
    [(500, {"approve"}, "rule"), (5_000, {"review", "sign"}, "people")],
)
def test_decision_creates_the_steps_that_it_names(
    muster: Installation, amount: float, created: set[str], by: str
) -> None:
    task = wait_for(muster, request(muster, "approval", amount=amount), "complete")
    assert set(task.steps) == {"route", "tell"} | created
    assert task.steps["tell"].result == {"by": by}


def test_batch_of_a_thousand_rows_is_done_by_ten_workers(muster: Installation) -> None:
    task = wait_for(muster, request(muster, "rows", rows=1000), "complete")
    assert len(task.steps) == 12
    assert task.steps["report"].result == {"batches": 10, "failed": 0, "rows": 1000}


def test_batch_goes_on_without_the_part_that_fails(muster: Installation) -> None:
    task = wait_for(muster, request(muster, "rows", rows=1000, fail_at=250), "complete")
    assert task.steps["process_003"].state == "error"
    assert task.steps["report"].result == {"batches": 10, "failed": 1, "rows": 900}


def test_task_that_takes_too_long_is_found_stale(muster: Installation) -> None:
    id = request(muster, "slow", seconds=300)
    task = wait_for(muster, id, "error")
    (entry,) = [e for e in muster.dlq_entries() if e.subject_id == id]
    assert entry.dlq_reason == "staleness_timeout"
    # a busy machine may not have started it by then
    assert task.steps["wait"].state in ("enqueued", "in_progress")
    repair(muster, "complete_manually", task.steps["wait"], result={}, force=True)
    assert wait_for(muster, id, "complete").steps["after"].state == "complete"
    execution = muster.execution(task.steps["wait"].execution_id)
    muster.wait_for_end(execution.id)
    assert muster.execution(execution.id).status == "cancelled"


def test_cancelled_task_stops_what_it_runs(muster: Installation) -> None:
    id = request(muster, "slow", seconds=300)
    running: UUID | None = muster.wait_for(
        lambda: _running(muster.client.call("task", id=id)), "its step does not run"
    )
    muster.client.call("cancel_task", id=id)
    task = wait_for(muster, id, "cancelled")
    assert running is not None
    assert {step.state for step in task.steps.values()} == {"cancelled"}
    assert muster.wait_for_end(running).status == "cancelled"


def test_executor_that_dies_in_the_middle_loses_no_task(install: Any) -> None:
    muster = install(environment="test")
    executor = muster.start_executor()
    muster.start_worker("w1", pool="threads", concurrency=4)
    muster.ready()
    ids = [request(muster, "rows", rows=1000) for _ in range(3)]
    muster.wait_for(
        lambda: any(e.status == "completed" for e in muster.executions().values()),
        "nothing was done before the executor died",
    )
    executor.kill_tree()
    ids.append(request(muster, "linear", start=1))
    muster.start_executor("executor2")
    for id in ids:
        wait_for(muster, id, "complete")
    assert len(muster.executions()) == 3 * 12 + 3


def _running(task: Any) -> UUID | None:
    step = task.steps.get("wait")
    return step.execution_id if step and step.state == "in_progress" else None
