"""Work of queues that is placed when it is accepted, as nothing has to wait."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.core import executions
from orchestrator.core.executions import NewExecution, placing
from orchestrator.core.models import Execution, ExecutionEvent
from orchestrator.queues import changes
from tests.factories import NOW, make_action, make_worker, seconds
from tests.queues.play import make_queue, waiting

pytestmark = [
    pytest.mark.parametrize("database", ["postgresql"], indirect=True),
    pytest.mark.usefixtures("database", "sent", "idle"),
]


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch, placed_by_the_executor: None) -> None:
    monkeypatch.setattr(placing, "is_idle", lambda: True)


def request(queue: str | None = "orders") -> Execution:
    make_action("core.echo")
    new = NewExecution(action_ref="core.echo", queue=queue)
    return executions.request(new, requested_by="tester", now=NOW)


def test_it_goes_to_a_worker_of_its_queue_with_a_free_slot() -> None:
    make_queue()
    make_worker("other")
    worker = make_worker("server", capacity=2, queues={"orders": None})
    rows = [request() for _ in range(3)]
    assert [row.worker_id for row in rows] == [worker.pk, worker.pk, None]
    assert [row.status for row in rows] == ["scheduled", "scheduled", "requested"]
    events = ExecutionEvent.objects.of(rows[0].pk).values_list("event", "actor")
    assert list(events) == [("schedule", placing.ACTOR)]


def test_worker_of_queues_takes_the_default_one_only_if_it_says_so() -> None:
    make_queue()
    make_worker("server", queues={"orders": None})
    assert request(None).worker_id is None
    both = make_worker("both", queues={"orders": None, "default": None})
    Execution.objects.all().delete()
    assert request(None).worker_id == both.pk


@pytest.mark.parametrize("values", [{"max_running": 5}, {}])
def test_limit_is_left_to_the_executor(values: dict[str, Any]) -> None:
    """It counts while it holds the queue, or the worker's slots."""
    make_queue(**values)
    make_worker(capacity=4, queues={"orders": None if values else 2})
    assert request().status == "requested"


def test_paused_queue_starts_nothing() -> None:
    make_queue()
    make_worker(queues={"orders": None})
    changes.pause("orders", reason="why not", actor="ann", now=NOW)
    assert request().status == "requested"
    changes.resume("orders", reason="enough", actor="ann", now=NOW)
    Execution.objects.all().delete()
    assert request().status == "scheduled"


def test_worker_that_pauses_the_queue_is_passed_over() -> None:
    make_queue()
    until = (NOW + seconds(30)).isoformat()
    make_worker(queues={"orders": None}, queue_pauses={"orders": until})
    assert request().status == "requested"


@pytest.mark.parametrize("other", ["orders", "mail", None])
def test_nothing_passes_what_waits_in_any_queue(other: str | None) -> None:
    make_queue()
    make_queue("mail")
    make_worker(capacity=4, queues={"orders": None, "mail": None, "default": None})
    waiting(other)
    assert request().status == "requested"
