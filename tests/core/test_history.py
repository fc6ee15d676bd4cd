"""Counters of executions: each event once, whoever writes it, whoever counts, whatever commits
when."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connections, transaction

from orchestrator.core import executions
from orchestrator.core.metrics import history
from orchestrator.core.models import Execution, ExecutionEvent, HistoryMark, Tally
from orchestrator.core.reasons import Reason
from orchestrator.core.state_machine import Move
from orchestrator.core.states import ExecutionStatus
from tests.factories import NOW, make_action, make_execution, make_worker, seconds
from tests.races import at_once
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("database", "sent")

LATER = NOW + timedelta(seconds=5)


def count_all() -> int:
    """Count until nothing is left: other transactions on the server may have to be waited for."""
    last = ExecutionEvent.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
    counted = 0

    def is_counted() -> bool:
        nonlocal counted
        counted += history.count(now=LATER)
        return HistoryMark.objects.get().counted_to >= last

    wait_until(is_counted)
    return counted


def number(metric: Any, *labels: str) -> float:
    values = Tally.objects.filter(metric=metric.name, reason=labels[0], part=labels[1])
    return values.values_list("value", flat=True).first() or 0.0


def ended(reason: Reason, status: ExecutionStatus) -> float:
    return number(history.ENDED, reason, status)


def end(execution: Execution, reason: Reason, *, now: datetime = NOW) -> None:
    executions.finish([executions.Ended(execution, reason, {})], now=now, actor="w1")


def reject(*, n: int = 1) -> None:
    waiting = [make_execution() for _ in range(n)]
    executions.end_attempts(
        waiting, reason=Reason.NO_WORKER_AVAILABLE, detail="none", failed_by="executor", now=NOW
    )


def test_ends_are_counted_by_status_and_reason() -> None:
    end(make_execution(ExecutionStatus.RUNNING), Reason.SUCCEEDED)
    end(make_execution(ExecutionStatus.RUNNING), Reason.RUN_TIMEOUT)
    reject(n=2)
    assert count_all() == 4
    assert ended(Reason.SUCCEEDED, ExecutionStatus.COMPLETED) == 1
    assert ended(Reason.RUN_TIMEOUT, ExecutionStatus.TIMEOUT) == 1
    assert ended(Reason.NO_WORKER_AVAILABLE, ExecutionStatus.FAILED) == 2
    assert count_all() == 0


def test_attempts_that_are_repeated_are_no_ends() -> None:
    action = make_action(
        "core.flaky", retry_policy={"max_attempts": 2, "retry_on": ["action_failed"]}
    )
    end(make_execution(ExecutionStatus.RUNNING, action=action), Reason.ACTION_FAILED)
    count_all()
    assert number(history.REPEATED, Reason.ACTION_FAILED, "retry") == 1
    assert ended(Reason.ACTION_FAILED, ExecutionStatus.FAILED) == 0


def test_ends_by_the_drain_are_counted_apart() -> None:
    for failed_by in ("dead_letter_handler", "execution_timeout_monitor"):
        executions.end_attempts(
            [make_execution(ExecutionStatus.SCHEDULED)],
            reason=Reason.QUEUE_TTL_EXPIRED,
            detail="expired",
            failed_by=failed_by,
            now=NOW,
        )
    count_all()
    assert ended(Reason.QUEUE_TTL_EXPIRED, ExecutionStatus.FAILED) == 2
    assert number(history.FAILED_BY_DLQ, Reason.QUEUE_TTL_EXPIRED, "") == 1


def test_waits_are_measured_from_acceptance_to_the_first_claim_and_for_each_attempt() -> None:
    worker = make_worker()
    execution = make_execution(worker=worker, created_at=NOW)
    for attempt, scheduled_at, claimed_at in ((1, 2, 2.2), (2, 50, 53)):
        schedule(execution, attempt, scheduled_at)
        granted = executions.claim(
            [(execution.pk, attempt)],
            worker_id=worker.pk,
            incarnation=worker.incarnation,
            now=NOW + seconds(claimed_at),
            actor="w1",
        )
        executions.give_back(unstarted=granted, now=NOW + seconds(claimed_at), actor="w1")
    count_all()
    sums = {stage: number(history.SCHEDULING, stage, "sum") for stage in history.STAGES}
    assert sums == pytest.approx(
        {
            "requested_to_scheduled": 2,
            "scheduled_to_running": 0.2 + 3,
            "requested_to_running": 2.2,
        }
    )
    assert number(history.SCHEDULING, "scheduled_to_running", "0.25") == 1
    assert number(history.SCHEDULING, "scheduled_to_running", "5") == 1
    assert number(history.SCHEDULING, "requested_to_running", "2.5") == 1
    assert number(history.REPEATED, Reason.GIVEN_BACK, "give_back") == 2


def schedule(execution: Execution, attempt: int, at: float) -> None:
    now = NOW + seconds(at)
    values = {"worker": execution.worker_id, "start_by": now + seconds(60)}
    move = Move(execution.pk, ExecutionStatus.REQUESTED, attempt - 1, values)
    assert Execution.objects.transition_many("schedule", [move], now=now, actor="executor")


def test_a_wait_that_a_clock_made_negative_is_not_measured() -> None:
    schedule(make_execution(worker=make_worker(), created_at=NOW + seconds(9)), 1, at=0)
    count_all()
    assert number(history.SCHEDULING, "requested_to_scheduled", "sum") == 0


def test_a_long_history_is_counted_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "AT_ONCE", 3)
    reject(n=10)
    assert count_all() == 10
    assert ended(Reason.NO_WORKER_AVAILABLE, ExecutionStatus.FAILED) == 10


def test_a_mark_that_is_gone_is_made_at_the_present_end() -> None:
    reject()
    HistoryMark.objects.all().delete()
    assert count_all() == 0
    assert HistoryMark.objects.get().counted_to == ExecutionEvent.objects.get().pk
    reject()
    assert count_all() == 1


def test_it_is_known_until_when_everything_is_counted() -> None:
    reject()
    count_all()
    assert HistoryMark.objects.get().counted_until == LATER
    wait_until(lambda: not history.count(now=LATER + timedelta(minutes=1)))
    assert HistoryMark.objects.get().counted_until == LATER + timedelta(minutes=1)


# --- several at once ----------------------------------------------------------------------------


def test_what_commits_late_is_counted_once_it_has_committed(database: str) -> None:
    if database == "sqlite":  # one writer at a time: ids are committed in their order
        reject()
        assert count_all() == 1
        return
    late = make_execution(ExecutionStatus.RUNNING)
    other = connections.create_connection("default")
    try:
        # the earlier id, in a transaction that stays open
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute(
                "UPDATE orchestrator_execution SET wait_reason = 'held' WHERE id = %s", [late.pk]
            )
            cursor.execute(
                """INSERT INTO orchestrator_executionevent
                   (execution_id, event, from_status, to_status, attempt, actor, reason, at)
                   VALUES (%s, 'retry', 'running', 'requested', 1, 'w1', 'action_failed', %s)""",
                [late.pk, NOW],
            )
        reject()
        assert history.count(now=LATER) == 0  # an earlier id may still come
        assert history.count(now=LATER) == 0
        other.commit()
        assert count_all() == 2
    finally:
        other.close()
    assert number(history.REPEATED, Reason.ACTION_FAILED, "retry") == 1


def test_two_that_count_at_once_count_each_event_once() -> None:
    reject(n=20)
    at_once(*[lambda: history.count(now=LATER)] * 3)
    count_all()
    assert ended(Reason.NO_WORKER_AVAILABLE, ExecutionStatus.FAILED) == 20


def test_counting_refuses_to_be_a_part_of_another_transaction() -> None:
    with pytest.raises(RuntimeError, match="durable"), transaction.atomic():
        history.count(now=LATER)


@pytest.mark.parametrize("pair", history.ENDED.pairs())
def test_an_end_that_is_shown_before_it_happens_can_happen(pair: tuple[str, str]) -> None:
    reason, status = Reason(pair[0]), ExecutionStatus(pair[1])
    begun = ExecutionStatus.RUNNING
    if status is ExecutionStatus.CANCELLED:
        begun = ExecutionStatus.CANCELING
    execution = make_execution(begun)
    end(execution, reason, now=execution.deadline_at)  # nothing goes back to the backlog
    execution.refresh_from_db()
    assert (execution.reason, execution.status) == (reason, status)
