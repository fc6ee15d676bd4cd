"""A worker that stops gives back what it has not begun, and records what has ended."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connections

from orchestrator.core.models import Worker
from orchestrator.core.reasons import Reason
from orchestrator.core.states import ExecutionStatus
from tests.rows import ended, reread
from tests.waiting import wait_until
from tests.workers.test_database_threads import asked, rows, statuses
from tests.workers.test_desk import Offered
from workers.agent import Agent
from workers.attempts import Attempt
from workers.host import Answer

pytestmark = [
    pytest.mark.usefixtures("database", "sent"),
    # threads of the worker write while a test looks on
    pytest.mark.parametrize("database", ["postgresql"], indirect=True),
]

S = ExecutionStatus


@pytest.fixture(autouse=True)
def unheard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.desk.state.task_ready", lambda *_: None)
    monkeypatch.setattr("workers.attempts.state.task_ready", lambda *_: None)
    monkeypatch.setattr("workers.agent.publisher.flush", lambda: True)


def claimed(agent: Agent, execution: Any) -> Any:
    """An attempt that the worker has claimed."""
    attempt: Any = Offered([], execution.pk)
    attempt.execution, attempt.is_lost = execution, False
    agent.desk.claimed[attempt.key] = attempt
    agent.desk.in_hand.take([attempt.key])
    return attempt


def leave(agent: Agent) -> None:
    """As on the main thread of a worker, which ends with its process."""
    agent.leave()
    connections.close_all()


def test_claim_that_is_granted_after_the_end_of_the_loop_goes_back_while_another_action_runs(
    w1: Agent,
) -> None:
    running, late, refused = rows(3, S.RUNNING)
    claimed(w1, running).job = object()
    batch = [asked(late), asked(refused)]
    w1.desk.in_hand.take([each.key for each in batch])
    w1.drain("shutting down", within_seconds=60)
    draining = threading.Thread(target=w1._drain, args=["shutting down"])
    draining.start()
    wait_until(lambda: Worker.objects.get().status == "draining")

    w1.claimer.answers.append(Answer(batch, [late]))

    wait_until(lambda: reread(late).status == "requested")
    wait_until(lambda: w1.desk.in_hand.keys() == [running.key])
    assert reread(late).retry_count == 0
    assert statuses([running]) == ["running"]
    w1._pool_is_down.set()
    draining.join(60)


def test_what_waits_for_its_release_or_for_a_turn_of_the_loop_goes_back_when_the_pool_is_down(
    w1: Agent,
) -> None:
    ran, waiting = rows(2, S.RUNNING)
    claimed(w1, ran).job = object()
    claimed(w1, waiting)
    w1.is_stopping = True

    w1.leave()

    assert ended(waiting) == ("requested", "given_back")
    assert reread(waiting).retry_count == 0
    assert statuses([ran]) == ["running"], "nobody knows that it has not begun"


def test_worker_does_not_leave_while_it_ends_what_a_killed_child_left_behind(
    working: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    (execution,) = rows(1, S.RUNNING)
    gone = threading.Event()
    monkeypatch.setattr("workers.attempts.processes.terminate", lambda *_, **__: gone.wait(60))
    attempt: Any = Attempt.__new__(Attempt)
    attempt.execution, (attempt.execution_id, attempt.number) = execution, execution.key
    attempt.time_start, attempt.desk, attempt.job = 1.0, working.desk, object()
    attempt.send_event = lambda *_, **__: None
    working.desk.claimed[attempt.key] = attempt
    working.is_stopping = True
    attempt.on_lost(SimpleNamespace(exception=ValueError("killed")))

    leaving = threading.Thread(target=leave, args=[working])
    leaving.start()
    leaving.join(0.5)
    assert leaving.is_alive()
    assert statuses([execution]) == ["running"]
    gone.set()
    leaving.join(60)

    assert ended(execution) == ("abandoned", Reason.PROCESS_LOST)
    assert Worker.objects.get().status_reason == "stopped"
