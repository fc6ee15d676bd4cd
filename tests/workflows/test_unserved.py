"""Steps that found no worker go on when one comes."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from orchestrator.core import investigations, maintenance
from orchestrator.core.models import DLQEntry, Execution, Worker
from orchestrator.core.reasons import Reason
from orchestrator.core.states import Lane
from orchestrator.workflows.engine import detect_stale, reset_for_retry, unserved
from orchestrator.workflows.models import TransitionRecord
from tests.factories import make_worker
from tests.workflows.play import Play, end_executions, start_executions, step

pytestmark = pytest.mark.usefixtures("database", "sent")

ONCE = {"retry": {"max_attempts": 1}}
NAME = "muster.retry_served_steps"


def waiting(**values: Any) -> Play:
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


def close(entry: DLQEntry, resolution: DLQEntry.Resolution, *, now: datetime) -> None:
    investigations.close(entry.dlq_entry_uuid, resolution=resolution, now=now, actor="ada")


def reset(play: Play) -> None:
    id = play.step("a").pk
    reset_for_retry(id, reason="it is mended", actor="ada", now=play.now, force=True)


def watch(play: Play, *, after: float = 5) -> Any:
    play.wait(after)
    return maintenance.run(NAME, now=play.now)


def test_blocked_task_goes_on_by_itself_when_a_worker_has_come() -> None:
    play = waiting()
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
    play = waiting()
    make_worker("w2", now=play.now + timedelta(seconds=4), **worker)
    assert watch(play) == 0
    assert play.state == "blocked_by_failures"


def test_worker_that_was_there_all_the_time_is_tried_once_a_minute() -> None:
    play = waiting()
    make_worker("w2", now=play.now - timedelta(seconds=1))
    assert watch(play) == 0
    Worker.objects.update(heartbeat_at=play.now + timedelta(seconds=60))
    assert watch(play, after=60) == 1


def test_template_says_that_it_does_not_wait() -> None:
    play = waiting(lifecycle={"on_no_worker": "fail"})
    make_worker("w2", now=play.now + timedelta(seconds=4))
    assert watch(play) == 0
    assert play.states["a"] == "error"


def test_environment_says_that_it_waits_after_all(settings: Any) -> None:
    environments = {settings.MUSTER.environment: {"lifecycle": {"on_no_worker": "wait"}}}
    play = waiting(lifecycle={"on_no_worker": "fail"}, environments=environments)
    make_worker("w2", now=play.now + timedelta(seconds=4))
    assert watch(play) == 1


def test_entry_that_says_it_failed_for_good_ends_the_waiting() -> None:
    play = waiting()
    close(DLQEntry.objects.get(), DLQEntry.Resolution.PERMANENTLY_FAILED, now=play.now)
    make_worker("w2", now=play.now + timedelta(seconds=4))
    assert watch(play) == 0
    assert play.state == "blocked_by_failures"


def test_that_word_counts_until_somebody_repairs_the_step() -> None:
    play = waiting()
    close(DLQEntry.objects.get(), DLQEntry.Resolution.PERMANENTLY_FAILED, now=play.now)
    play.wait(1)
    reset(play)
    lose(play, "a", Reason.NO_WORKER_AVAILABLE)
    make_worker("w2", now=play.now + timedelta(seconds=4))
    assert watch(play) == 1


@pytest.mark.parametrize("resolution", ["manually_resolved", "cancelled"])
def test_other_ends_of_an_investigation_change_nothing_about_its_task(resolution: str) -> None:
    play = waiting()
    close(DLQEntry.objects.get(), DLQEntry.Resolution(resolution), now=play.now)
    make_worker("w2", now=play.now + timedelta(seconds=4))
    assert watch(play) == 1
    assert play.states["a"] == "enqueued"


def test_task_goes_on_whatever_else_is_pending_about_it() -> None:
    play = Play(step("a", **ONCE))
    entry = investigations.open_manually("task", play.id, detail="?", now=play.now, actor="ada")
    lose(play, "a", Reason.NO_WORKER_AVAILABLE)
    assert [each.pk for each in DLQEntry.objects.all()] == [entry.pk]
    make_worker("w2", now=play.now + timedelta(seconds=4))
    assert watch(play) == 1
    assert play.states["a"] == "enqueued"


def test_task_that_was_stale_goes_on_while_nobody_has_closed_that_entry() -> None:
    play = Play(step("a", **ONCE), lifecycle={"max_steps_in_process_minutes": 1})
    execution_id = play.step("a").execution_id
    assert execution_id is not None
    start_executions([execution_id], now=play.now)
    play.wait(61)
    detect_stale(play.now)
    assert (play.state, DLQEntry.objects.get().dlq_reason) == ("error", "staleness_timeout")
    reset(play)
    lose(play, "a", Reason.NO_WORKER_AVAILABLE)
    assert (play.state, DLQEntry.objects.get().resolution_status) == (
        "blocked_by_failures",
        "pending",
    )
    make_worker("w2", now=play.now + timedelta(seconds=4))
    assert watch(play) == 1
    assert play.state == "steps_in_process"


def test_step_goes_on_beside_one_that_has_failed() -> None:
    play = Play(step("a", **ONCE), step("b", **ONCE))
    play.fail("a", message="out of disk")
    lose(play, "b", Reason.NO_WORKER_AVAILABLE)
    assert DLQEntry.objects.get().dlq_reason == "max_retries_exceeded"
    make_worker("w2", now=play.now + timedelta(seconds=4))
    assert watch(play) == 1
    assert play.states == {"a": "error", "b": "enqueued"}


def test_step_that_lost_two_workers_is_left_to_people() -> None:
    play = Play(step("a", **ONCE))
    Execution.objects.update(lost_workers=2)
    lose(play, "a", Reason.NO_WORKER_AVAILABLE)
    assert DLQEntry.objects.get().dlq_reason == "poison"
    make_worker("w2", now=play.now + timedelta(seconds=4))
    assert watch(play) == 0


def test_those_that_do_not_wait_keep_no_place_from_those_that_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unserved, "AT_ONCE", 1)
    waiting(lifecycle={"on_no_worker": "fail"})
    play = waiting(name="waits")
    make_worker("w2", now=play.now + timedelta(seconds=4))
    assert watch(play) == 1
    assert play.states["a"] == "enqueued"


# SQLite has no such plan to show; an installation on it has few steps
@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_steps_that_failed_for_other_reasons_are_not_read() -> None:
    play = waiting()
    execution_id = play.step("a").execution_id
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO workflows_step (id, task_id, name, template_step, kind, state, fence,
                state_entered_at, attempts, max_attempts, retryable, ended_at, error,
                execution_id)
            SELECT gen_random_uuid(), %s, 's' || n, 'b', 'standard', 'error', 1, %s, 1, 1, true, %s,
                '{"reason": "action_failed", "lost_workers": 0}', %s
            FROM generate_series(1, 5000) AS n
            """,
            [play.id, play.now, play.now, execution_id],
        )
        cursor.execute("ANALYZE workflows_step")
    with CaptureQueriesContext(connection) as queries:
        assert unserved.retry_served(now=play.now) == 0
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {queries[0]['sql']}")
        plan = "\n".join(row[0] for row in cursor.fetchall())
    found = r"using step_error_by_reason on workflows_step \(actual rows=1(\.00)? "
    assert re.search(found, plan), plan


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
    play = waiting()
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
    play = waiting()
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
