"""The queue of a new execution: whose word counts, what it refuses, what it lends."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from orchestrator.core import executions
from orchestrator.core.executions import NewExecution, RequestRefused
from orchestrator.core.models import Execution
from orchestrator.queues import changes
from tests.factories import NOW, make_action, make_execution, make_worker
from tests.principals import ROOT
from tests.queues.play import make_queue

pytestmark = pytest.mark.usefixtures("database", "sent")


def request(**values: Any) -> Execution:
    new = NewExecution(**{"action_ref": "core.echo"} | values)
    return executions.request(new, requested_by="tests", now=NOW)


def refusal(**values: Any) -> str:
    with pytest.raises(RequestRefused) as refused:
        request(**values)
    return str(refused.value)


@pytest.fixture(autouse=True)
def _action(database: str) -> None:
    make_action()


def test_request_beats_the_action_and_default_beats_both() -> None:
    make_queue("orders")
    make_queue("mail")
    make_action("core.post", queue="mail")
    assert request(action_ref="core.post").queue == "mail"
    assert request(action_ref="core.post", queue="orders").queue == "orders"
    assert request(action_ref="core.post", queue="default").queue is None
    assert request().queue is None


def test_values_of_the_queue_stand_in_for_those_that_are_missing() -> None:
    make_action("core.again", retry_policy={"backoff": "linear"}, timeout_seconds=7)
    make_queue(
        priority=9, deadline_seconds=100, timeout_seconds=30, retry_limit=4, action="core.again"
    )
    row = request(queue="orders", action_ref="")
    assert (row.action_ref, row.priority, row.timeout_seconds) == ("core.again", 9, 30)
    assert row.deadline_at == NOW + timedelta(seconds=100)
    assert row.retry_policy == {"backoff": "linear", "max_attempts": 5}
    own = request(queue="orders", priority=0, timeout_seconds=5, retry={"max_attempts": 2})
    assert (own.priority, own.timeout_seconds, own.wanted_retries["max_attempts"]) == (0, 5, 2)


def test_execution_that_was_lost_before_begins_in_the_retry_lane() -> None:
    make_queue()
    assert request(queue="orders").lane == "input"
    row = request(queue="orders", retry_count=3)
    assert (row.lane, row.retry_count) == ("retry", 3)


def test_unknown_and_closed_and_retired_queues_refuse() -> None:
    make_queue()
    assert "did you mean 'orders'?" in refusal(queue="order")
    make_queue(accepts=False)
    assert "accepts nothing" in refusal(queue="orders")
    changes.retire("orders", reason="over", actor="ann", now=NOW)
    assert "no queue is called 'orders'" in refusal(queue="orders")


def test_queue_and_worker_together_are_refused_and_a_worker_leaves_the_actions_queue_aside() -> (
    None
):
    make_queue()
    worker = make_worker()
    make_action("core.post", queue="orders")
    assert "expected no queue beside worker_id" in refusal(queue="orders", worker_id=worker.pk)
    assert request(action_ref="core.post", worker_id=worker.pk).queue is None
    assert request(queue="default", worker_id=worker.pk).pinned_worker_id == worker.pk


def test_queue_without_an_action_needs_one_from_its_caller() -> None:
    make_queue()
    assert "the queue orders has none of its own" in refusal(queue="orders", action_ref="")
    assert "as no queue is named" in refusal(action_ref="")


def test_paused_queue_accepts() -> None:
    make_queue()
    changes.pause("orders", reason="why", actor="ann", now=NOW)
    assert request(queue="orders").status == "requested"


def test_database_refuses_a_lane_without_a_queue_and_a_queue_without_a_lane() -> None:
    wrong: list[dict[str, Any]] = [
        {"lane": "input"}, {"queue": "orders"}, {"queue": "orders", "lane": "up"},
    ]  # fmt: skip
    for values in wrong:
        with pytest.raises(IntegrityError), transaction.atomic():
            make_execution(**values)


def test_running_it_again_asks_the_same_queue() -> None:
    make_action("core.post", queue="orders")
    make_queue()
    make_queue("mail")
    action = make_action("core.post")
    for queue, lane in ((None, None), ("mail", "input")):
        ended = make_execution("completed", queue=queue, lane=lane, action=action)
        new = executions.run_again(ended, token="t", by="ann", principal=ROOT, now=NOW)
        assert new.queue == queue
