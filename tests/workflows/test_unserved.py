"""Steps that found no worker go on when one comes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from orchestrator.core import investigations, maintenance
from orchestrator.core.models import DLQEntry, Execution, Worker
from orchestrator.core.reasons import Reason
from orchestrator.core.states import Lane
from orchestrator.workflows.models import TransitionRecord
from tests.factories import make_worker
from tests.workflows.play import Play, end_executions, step

pytestmark = pytest.mark.usefixtures("database", "sent")

ONCE = {"retry": {"max_attempts": 1}}
NAME = "muster.retry_served_steps"


def unserved(**values: Any) -> Play:
    """A task whose step has found no worker, and a fleet without any."""
    play = Play(step("a", **ONCE), step("b", "a"), **values)
    lose(play, "a", Reason.NO_WORKER_AVAILABLE)
    assert play.state == "blocked_by_failures"
    return play


def lose(play: Play, name: str, reason: Reason) -> None:
    execution_id = play.step(name).execution_id
    assert execution_id is not None
    result = {"error": "no workers available", "message": "none", "failed_by": "executor"}
    end_executions([execution_id], "fail", reason, result, now=play.now)
    Worker.objects.update(status=Worker.Status.INACTIVE, gone_at=play.now)
    play.advance()


def watch(play: Play, *, after: float = 5) -> Any:
    play.wait(after)
    return maintenance.run(NAME, now=play.now)


def test_blocked_task_goes_on_by_itself_when_a_worker_has_come() -> None:
    play = unserved()
    assert watch(play) == 0
    play.wait(1)
    make_worker("w2", now=play.now)
    assert watch(play) == 1
    assert (play.states["a"], play.state) == ("enqueued", "steps_in_process")
    assert play.step("a").attempts == 1
    record = TransitionRecord.objects.get(step=play.step("a"), event="reset")
    assert (record.actor, record.reason) == ("worker_watch", "a worker for it has come")
    assert DLQEntry.objects.get().resolution_status == "pending"
    assert watch(play) == 0


@pytest.mark.parametrize(
    "worker", [{"runtimes": ["shell"]}, {"cordoned": True}, {"missing_code": {"core": "gone"}}]
)
def test_worker_that_could_not_run_it_is_none(worker: dict[str, Any]) -> None:
    play = unserved()
    make_worker("w2", now=play.now + timedelta(seconds=4), **worker)
    assert watch(play) == 0
    assert play.state == "blocked_by_failures"


def test_worker_that_was_there_all_the_time_is_tried_once_a_minute() -> None:
    play = unserved()
    make_worker("w2", now=play.now - timedelta(seconds=1))
    assert watch(play) == 0
    Worker.objects.update(heartbeat_at=play.now + timedelta(seconds=60))
    assert watch(play, after=60) == 1


def test_template_says_that_it_does_not_wait() -> None:
    play = unserved(lifecycle={"on_no_worker": "fail"})
    make_worker("w2", now=play.now + timedelta(seconds=4))
    assert watch(play) == 0
    assert play.states["a"] == "error"


def test_environment_says_that_it_waits_after_all(settings: Any) -> None:
    environments = {settings.MUSTER.environment: {"lifecycle": {"on_no_worker": "wait"}}}
    play = unserved(lifecycle={"on_no_worker": "fail"}, environments=environments)
    make_worker("w2", now=play.now + timedelta(seconds=4))
    assert watch(play) == 1


def test_closed_investigation_ends_the_waiting() -> None:
    play = unserved()
    investigations.close(
        DLQEntry.objects.get().dlq_entry_uuid,
        resolution=DLQEntry.Resolution.PERMANENTLY_FAILED,
        now=play.now,
        actor="ada",
    )
    make_worker("w2", now=play.now + timedelta(seconds=4))
    assert watch(play) == 0


@pytest.mark.parametrize(
    "reason", [Reason.QUEUE_TTL_EXPIRED, Reason.SCHEDULED_TIMEOUT, Reason.UNROUTABLE]
)
def test_step_that_its_worker_never_began_goes_on_with_another_one(reason: Reason) -> None:
    play = Play(step("a", **ONCE))
    lose(play, "a", reason)
    assert DLQEntry.objects.get().dlq_reason == "worker_unavailable"
    make_worker("w2", now=play.now + timedelta(seconds=4))
    assert watch(play) == 1
    assert play.states["a"] == "enqueued"


@pytest.mark.parametrize(("queue", "goes_on"), [("scans", "b"), ("", "a")])
def test_steps_of_one_action_that_need_different_workers_are_tried_apart(
    queue: str, goes_on: str
) -> None:
    play = Play(step("a", **ONCE), step("b", **ONCE))
    scan = Execution.objects.filter(action_ref="core.echo", pk__in=[play.step("b").execution_id])
    scan.update(queue="scans", lane=Lane.INPUT)
    lose(play, "a", Reason.NO_WORKER_AVAILABLE)
    lose(play, "b", Reason.NO_WORKER_AVAILABLE)
    subscriptions = {"queues": {queue: None}} if queue else {}
    make_worker("w2", now=play.now + timedelta(seconds=4), **subscriptions)
    assert watch(play) == 1
    other = {"a": "b", "b": "a"}[goes_on]
    assert play.states == {goes_on: "enqueued", other: "error"}


def test_another_cause_after_it_went_on_opens_an_investigation_of_its_own() -> None:
    play = unserved()
    make_worker("w2", now=play.now + timedelta(seconds=4))
    assert watch(play) == 1
    play.fail("a", message="out of disk")
    assert play.state == "blocked_by_failures"
    first, second = DLQEntry.objects.order_by("pk")
    assert (first.dlq_reason, first.resolution_status) == ("worker_unavailable", "cancelled")
    assert first.notes[0]["text"] == (
        "the task went on by itself; it has another entry now: max_retries_exceeded"
    )
    assert (second.dlq_reason, second.resolution_status) == ("max_retries_exceeded", "pending")
    assert "out of disk" in second.detail


def test_same_cause_again_is_the_same_investigation() -> None:
    play = unserved()
    make_worker("w2", now=play.now + timedelta(seconds=4))
    assert watch(play) == 1
    lose(play, "a", Reason.NO_WORKER_AVAILABLE)
    assert play.state == "blocked_by_failures"
    assert DLQEntry.objects.get().resolution_status == "pending"


def test_step_whose_worker_was_lost_is_left_to_people() -> None:
    play = Play(step("a", **ONCE))
    lose(play, "a", Reason.WORKER_LOST)
    assert DLQEntry.objects.get().dlq_reason == "worker_unavailable"
    make_worker("w2", now=play.now + timedelta(seconds=4))
    assert watch(play) == 0
    assert play.states["a"] == "error"
