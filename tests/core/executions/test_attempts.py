"""One attempt: claimed once, finished once, and refused when it is too late."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext

from orchestrator.core import executions, fleet, messages
from orchestrator.core.executions import Ended
from orchestrator.core.models import Action, Execution, ExecutionEvent, Worker
from orchestrator.core.models.executions import ExecutionQuerySet
from orchestrator.core.reasons import Known, Reason
from orchestrator.core.states import ExecutionStatus
from tests.factories import NOW, make_action, make_execution, make_worker
from tests.rows import events, reread

pytestmark = pytest.mark.usefixtures("database", "sent")

S = ExecutionStatus
LATER = NOW + timedelta(seconds=1)
RESULT = {"answer": 42}


def claim(*rows: Execution, now: datetime = NOW, **values: Any) -> list[Execution]:
    asked = [(row.pk, values.get("attempt", row.attempt)) for row in rows]
    return executions.claim(
        asked,
        worker_id=values.get("worker_id") or rows[0].worker_id or 0,
        incarnation=values.get("incarnation", 1),
        now=now,
        actor="w1",
    )


def finish(claimed: Execution, reason: Reason = Reason.SUCCEEDED, now: datetime = LATER) -> bool:
    ended = Ended(execution=claimed, reason=reason, result=RESULT)
    return claimed.key in executions.finish([ended], now=now, actor="w1")


def tasks(sent: Sequence[messages.Message]) -> list[str]:
    return [message.task for message in sent]


def retrying(**policy: Any) -> Action:
    return make_action("core.again", retry_policy={"max_attempts": 3, **policy}, idempotent=True)


# --- claim -------------------------------------------------------------------------------------


def test_claim_starts_the_attempt_with_a_time_limit() -> None:
    scheduled = make_execution(S.SCHEDULED, timeout_seconds=30)
    (claimed,) = claim(scheduled)
    row = reread(scheduled)
    assert (row.status, row.started_at, row.worker_incarnation) == ("running", NOW, 1)
    assert row.run_deadline_at == NOW + timedelta(seconds=40), "the worker's own limit acts first"
    assert executions.run_limit_seconds(claimed) == 30
    for name in ("status", "attempt", "started_at", "run_deadline_at", "worker_incarnation"):
        assert getattr(claimed, name) == getattr(row, name), name


def test_deadline_cuts_the_time_limit_short() -> None:
    (claimed,) = claim(make_execution(S.SCHEDULED, deadline_at=NOW + timedelta(seconds=12)))
    assert executions.run_limit_seconds(claimed) == 12
    assert executions.run_limit_seconds(claimed, 5.0) == 7, "it began so long after its claim"
    assert executions.run_limit_seconds(claimed, 20.0) > 0, "0 would be no limit"


@pytest.mark.parametrize(
    ("timeout_seconds", "stop_seconds", "late_seconds"), [(600, 4, 4), (10, 6, 4), (2, 10, 10)]
)
def test_action_that_its_deadline_cuts_short_stops_before_the_sweep_gives_it_up(
    timeout_seconds: float, stop_seconds: float, late_seconds: float
) -> None:
    deadline_at = NOW + timedelta(seconds=12)
    scheduled = make_execution(
        S.SCHEDULED, deadline_at=deadline_at, timeout_seconds=timeout_seconds
    )
    (claimed,) = claim(scheduled)
    assert executions.stop_limit_seconds(claimed) == stop_seconds
    assert executions.stop_limit_seconds(claimed, 2.0) == late_seconds, "began 2 s after its claim"


def test_second_claim_of_an_attempt_is_refused() -> None:
    scheduled = make_execution(S.SCHEDULED)
    assert claim(scheduled)
    assert claim(scheduled) == []
    assert events(scheduled) == ["claim"]


@pytest.mark.parametrize(
    ("row", "asked"),
    [
        ({"attempt": 2}, {"attempt": 1}),
        ({}, {"attempt": 2}),
        ({"start_by": NOW}, {}),
        ({"deadline_at": NOW}, {}),
        ({}, {"incarnation": 2}),
        ({}, {"worker_id": 4711}),
    ],
    ids=["earlier attempt", "later attempt", "start_by", "deadline", "incarnation", "worker"],
)
def test_claim_is_refused(row: dict[str, Any], asked: dict[str, Any]) -> None:
    scheduled = make_execution(S.SCHEDULED, **row)
    assert claim(scheduled, **asked) == []
    assert reread(scheduled).status == "scheduled"


def test_worker_cannot_claim_what_is_dispatched_to_another() -> None:
    scheduled = make_execution(S.SCHEDULED)
    assert claim(scheduled, worker_id=make_worker("w2").pk) == []
    assert reread(scheduled).status == "scheduled"


def test_worker_that_was_declared_lost_cannot_claim() -> None:
    scheduled = make_execution(S.SCHEDULED)
    Worker.objects.update(status="inactive", gone_at=NOW)
    assert claim(scheduled) == []


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_nobody_writes_between_the_statements_of_a_claim_on_sqlite() -> None:
    scheduled = make_execution(S.SCHEDULED)
    with CaptureQueriesContext(connection) as queries:
        assert claim(scheduled)
    verbs = [each["sql"].split()[0] for each in queries]
    assert verbs[:2] == ["BEGIN", "SELECT"]
    assert verbs.count("COMMIT") == 1


def test_draining_worker_may_claim_what_it_was_sent_before() -> None:
    scheduled = make_execution(S.SCHEDULED)
    assert fleet.drain(worker_id=scheduled.worker_id or 0, incarnation=1, reason="upgrade", now=NOW)
    assert claim(scheduled)


@pytest.mark.parametrize("status", sorted(set(S) - {S.SCHEDULED}))
def test_nothing_but_scheduled_is_claimed(status: str) -> None:
    worker = make_worker()
    assert claim(make_execution(status, attempt=1), worker_id=worker.pk) == []


def test_claim_takes_of_a_batch_what_is_still_there() -> None:
    worker = make_worker()
    rows = [make_execution(S.SCHEDULED, worker=worker) for _ in range(4)]
    executions.cancel(execution_id=rows[1].pk, actor="tester", now=NOW)
    assert {each.pk for each in claim(*rows)} == {rows[0].pk, rows[2].pk, rows[3].pk}


def test_of_several_attempts_in_one_batch_the_one_that_it_is_at_is_claimed() -> None:
    worker = make_worker()
    first, second = (make_execution(S.SCHEDULED, worker=worker, attempt=2) for _ in range(2))
    asked = [(first.pk, 1), (first.pk, 2), (first.pk, 2), (second.pk, 2), (second.pk, 3)]
    claimed = executions.claim(asked, worker_id=worker.pk, incarnation=1, now=NOW, actor="w1")
    assert {each.key for each in claimed} == {(first.pk, 2), (second.pk, 2)}
    assert (events(first), events(second)) == (["claim"], ["claim"])
    assert {event.attempt for event in ExecutionEvent.objects.all()} == {2}


# --- finish ------------------------------------------------------------------------------------


def test_of_two_attempts_that_end_at_once_the_one_that_it_is_at_counts() -> None:
    (old,) = claim(make_execution(S.SCHEDULED))
    Execution.objects.filter(pk=old.pk).update(status="scheduled", attempt=2)
    (new,) = claim(reread(old))
    ends = [Ended(each, Reason.SUCCEEDED, {"attempt": each.attempt}) for each in (new, old)]
    assert executions.finish(ends, now=LATER, actor="w1") == {new.key}
    row = reread(new)
    assert (row.status, row.result) == ("completed", {"attempt": 2})
    assert ExecutionEvent.objects.get(event="complete").attempt == 2


def test_a_result_is_stored_as_it_is_whatever_is_in_it():
    worker = make_worker()
    result = {"stdout": "y\n" * 400_000, "stderr": "\\ \" ' {} , NULL $1 %s", "none": None}
    took_seconds = []
    for _ in range(3):
        row = make_execution(status=S.SCHEDULED, worker=worker)
        (claimed,) = claim(row)
        began = time.process_time()
        executions.finish([Ended(claimed, Reason.SUCCEEDED, result)], now=LATER, actor="w1")
        took_seconds.append(time.process_time() - began)
        assert reread(row).result == result
    # in C: what escapes a megabyte in Python holds up the worker for a second
    assert min(took_seconds) < 0.4


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (Reason.SUCCEEDED, "completed"),
        (Reason.ACTION_FAILED, "failed"),
        (Reason.RUN_TIMEOUT, "timeout"),
        (Reason.PROCESS_LOST, "abandoned"),
    ],
)
def test_worker_ends_its_attempt(reason: Reason, status: str, sent: list[messages.Message]) -> None:
    (claimed,) = claim(make_execution(S.SCHEDULED))
    assert finish(claimed, reason)
    row = reread(claimed)
    assert (row.status, row.reason, row.ended_at) == (status, reason.value, LATER)
    assert row.result == RESULT
    assert [(m.task, m.kwargs["execution_ids"]) for m in sent] == [
        (messages.COMPLETED, [str(claimed.pk)])
    ]


def test_end_counts_once() -> None:
    (claimed,) = claim(make_execution(S.SCHEDULED))
    assert finish(claimed)
    assert not finish(claimed, Reason.ACTION_FAILED)
    assert reread(claimed).status == "completed"
    assert events(claimed) == ["claim", "complete"]


def test_late_result_of_an_attempt_that_timed_out_is_ignored() -> None:
    (claimed,) = claim(make_execution(S.SCHEDULED))
    assert executions.sweep(now=NOW + timedelta(seconds=71))["not_ended"] == 1
    assert not finish(claimed, now=NOW + timedelta(seconds=72))
    row = reread(claimed)
    assert (row.status, row.reason) == ("timeout", "run_deadline_passed")


def test_late_result_of_an_earlier_attempt_does_not_touch_the_next() -> None:
    execution = make_execution(S.SCHEDULED, action=retrying(backoff="none"))
    (first,) = claim(execution)
    executions.sweep(now=NOW + timedelta(seconds=71))
    later = NOW + timedelta(seconds=75)
    Worker.objects.update(heartbeat_at=later)
    executions.schedule([execution.pk], placement=fleet.Placement(), now=later, actor="executor")
    (second,) = claim(reread(execution), now=later)
    assert not finish(first, Reason.ACTION_FAILED, now=later)
    assert reread(execution).status == "running"
    assert finish(second, now=later)
    assert reread(execution).attempt == 2


def test_batch_of_ends_is_recorded_each_with_its_own_result() -> None:
    worker = make_worker()
    claimed = claim(*(make_execution(S.SCHEDULED, worker=worker) for _ in range(6)))
    reasons = [Reason.SUCCEEDED, Reason.ACTION_FAILED, Reason.RUN_TIMEOUT] * 2
    ends = [
        Ended(execution=each, reason=reason, result={"n": n})
        for n, (each, reason) in enumerate(zip(claimed, reasons, strict=True))
    ]
    counted = executions.finish(ends, now=LATER, actor="w1")
    assert counted == {each.key for each in claimed}
    for n, (each, reason) in enumerate(zip(claimed, reasons, strict=True)):
        row = reread(each)
        assert (row.reason, row.result) == (reason.value, {"n": n})


# --- retry -------------------------------------------------------------------------------------


def test_failure_that_the_policy_names_goes_to_another_attempt_after_its_backoff(
    sent: list[messages.Message],
) -> None:
    action = retrying(retry_on=["action_failed"], backoff_base_ms=4_000, jitter=0)
    (claimed,) = claim(make_execution(S.SCHEDULED, action=action))
    assert finish(claimed, Reason.ACTION_FAILED)
    row = reread(claimed)
    assert (row.status, row.attempt, row.retry_count) == ("requested", 1, 1)
    assert row.next_retry_at == LATER + timedelta(seconds=4)
    assert (row.start_by, row.run_deadline_at, row.ended_at) == (None, None, None)
    assert row.reason == "action_failed"
    assert sent == [], "the backlog takes it up when it is due"


@pytest.mark.parametrize("reason", [Reason.PROCESS_LOST, Reason.ACTION_FAILED])
def test_batch_of_ends_is_recorded_as_a_whole_though_the_connection_breaks_in_it(
    sent: list[messages.Message], monkeypatch: pytest.MonkeyPatch, reason: Reason
) -> None:
    """One reason, after which one is tried again and one is not; and two reasons."""
    again = make_execution(S.SCHEDULED, action=retrying(backoff="none"))
    claimed = claim(make_execution(S.SCHEDULED), again)
    reasons = (Reason.SUCCEEDED if reason is Reason.ACTION_FAILED else reason, reason)
    ends = [Ended(each, why, RESULT) for each, why in zip(claimed, reasons, strict=True)]
    swap = ExecutionQuerySet.transition_many
    moved: list[str] = []

    def breaks(rows: Any, event: str, moves: Any, **values: Any) -> Any:
        if moved:
            raise OperationalError("the connection is closed")
        moved.append(event)
        return swap(rows, event, moves, **values)

    with monkeypatch.context() as patch:
        patch.setattr(ExecutionQuerySet, "transition_many", breaks)
        with pytest.raises(OperationalError):
            executions.finish(ends, now=LATER, actor="w1")
    assert {reread(each).status for each in claimed} == {S.RUNNING}
    assert executions.finish(ends, now=LATER, actor="w1") == {each.key for each in claimed}
    assert messages.COMPLETED in tasks(sent)


def test_ends_of_one_kind_are_one_statement() -> None:
    claimed = claim(make_execution(S.SCHEDULED), make_execution(S.SCHEDULED))
    ends = [Ended(each, Reason.SUCCEEDED, RESULT) for each in claimed]
    with CaptureQueriesContext(connection) as queries:
        executions.finish(ends, now=LATER, actor="w1")
    if connection.vendor == "postgresql":
        assert len(queries) == 1


def test_end_that_is_undone_is_told_to_nobody(sent: list[messages.Message]) -> None:
    rows = [make_execution(S.RUNNING), make_execution(S.RUNNING, action=retrying(backoff="none"))]
    with transaction.atomic():
        assert executions.end_attempts(
            rows, reason=Reason.WORKER_LOST, detail="", failed_by="test", now=LATER
        )
        assert sent == [], "told before the commit"
        transaction.set_rollback(True)
    assert sent == []
    assert {reread(row).status for row in rows} == {S.RUNNING}


def test_retry_without_backoff_is_announced_at_once(sent: list[messages.Message]) -> None:
    (claimed,) = claim(make_execution(S.SCHEDULED, action=retrying(backoff="none")))
    finish(claimed, Reason.PROCESS_LOST)
    assert reread(claimed).status == "requested"
    assert tasks(sent) == [messages.SCHEDULE]


def test_last_attempt_that_the_policy_allows_is_the_last() -> None:
    execution = make_execution(S.SCHEDULED, action=retrying(backoff="none"), retry_count=2)
    (claimed,) = claim(execution)
    finish(claimed, Reason.PROCESS_LOST)
    assert reread(execution).status == "abandoned"


@pytest.mark.parametrize(
    ("result", "seconds"),
    [({executions.RETRY_AFTER: 90.5}, 90.5), ({}, 4), ({executions.RETRY_AFTER: None}, 4)],
)
def test_delay_that_an_action_asks_for_counts_instead_of_its_policys(
    result: dict[str, Any], seconds: float
) -> None:
    action = retrying(backoff_base_ms=4_000, jitter=0)
    (claimed,) = claim(make_execution(S.SCHEDULED, action=action))
    ended = Ended(execution=claimed, reason=Reason.TRY_AGAIN, result=result)
    executions.finish([ended], now=LATER, actor="w1")
    row = reread(claimed)
    assert (row.status, row.reason, row.retry_count) == ("requested", "try_again", 1)
    assert row.next_retry_at == LATER + timedelta(seconds=seconds)


@pytest.mark.parametrize("asked", ["***", -1, 1e300, None, True])
def test_delay_that_cannot_be_is_that_of_the_policy(asked: Any) -> None:
    """Such as one whose number is masked, as it is a secret of the same execution, too."""
    (claimed,) = claim(make_execution(S.SCHEDULED, action=retrying(backoff="none")))
    end = Ended(claimed, Reason.TRY_AGAIN, {"retry_after_seconds": asked})
    assert executions.finish([end], now=LATER, actor="w1")
    assert (reread(claimed).status, reread(claimed).next_retry_at) == ("requested", None)


@pytest.mark.parametrize(
    ("policy", "status"),
    [
        ({"backoff_base_ms": 10**15, "max_backoff_ms": 10**15}, "failed"),
        ({"retry_on": ["reason of a later version"]}, "failed"),
    ],
)
def test_policy_of_one_execution_keeps_no_other_from_its_end(
    policy: dict[str, Any], status: str
) -> None:
    odd, other = make_execution(S.SCHEDULED, action=retrying()), make_execution(S.SCHEDULED)
    Execution.objects.filter(pk=odd.pk).update(retry_policy={"max_attempts": 3, **policy})
    ends = [Ended(claim(row)[0], Reason.TRY_AGAIN, RESULT) for row in (odd, other)]
    assert len(executions.finish(ends, now=LATER, actor="w1")) == 2
    assert (reread(odd).status, reread(other).status) == (status, "failed")


def test_delay_in_the_result_of_a_failure_means_nothing() -> None:
    action = retrying(backoff_base_ms=4_000, jitter=0, retry_on=["action_failed"])
    (claimed,) = claim(make_execution(S.SCHEDULED, action=action))
    result = {executions.RETRY_AFTER: 90}
    ended = Ended(execution=claimed, reason=Reason.ACTION_FAILED, result=result)
    executions.finish([ended], now=LATER, actor="w1")
    assert reread(claimed).next_retry_at == LATER + timedelta(seconds=4)


def test_retry_ends_with_the_deadline() -> None:
    execution = make_execution(S.SCHEDULED, action=retrying(), deadline_at=LATER)
    (claimed,) = claim(execution)
    finish(claimed, Reason.PROCESS_LOST, now=LATER)
    assert reread(execution).status == "abandoned"


@pytest.mark.parametrize(
    ("reason", "policy", "result"),
    [
        (Reason.TRY_AGAIN, {}, {executions.RETRY_AFTER: 86_400}),
        (Reason.TRY_AGAIN, {}, {executions.RETRY_AFTER: 59}),
        (Reason.PROCESS_LOST, {"backoff_base_ms": 59_000, "max_backoff_ms": 59_000}, {}),
    ],
)
def test_failure_whose_retry_would_be_due_after_the_deadline_is_the_end(
    reason: Reason, policy: dict[str, Any], result: dict[str, Any]
) -> None:
    action = retrying(jitter=0, **policy)
    execution = make_execution(S.SCHEDULED, action=action, deadline_at=NOW + timedelta(seconds=60))
    (claimed,) = claim(execution)
    ends = [Ended(claimed, reason, RESULT | result)]
    executions.finish(ends, now=NOW + timedelta(seconds=1), actor="w1")
    row = reread(execution)
    assert row.is_terminal
    assert (row.reason, row.result) == (reason, RESULT | result)


@pytest.mark.parametrize("reason", [r for r in Reason if r.known is Known.OUTCOME_UNKNOWN])
def test_unknown_outcome_is_not_repeated_unless_the_action_is_idempotent(reason: Reason) -> None:
    action = make_action("core.once", retry_policy={"max_attempts": 3})
    (claimed,) = claim(make_execution(S.SCHEDULED, action=action))
    finish(claimed, reason)
    assert reread(claimed).is_terminal


def test_what_a_worker_gives_back_is_scheduled_anew_and_counts_for_no_policy(
    sent: list[messages.Message],
) -> None:
    scheduled, runs = make_execution(S.SCHEDULED), make_execution(S.RUNNING)
    (unstarted,) = claim(make_execution(S.SCHEDULED))
    elsewhere = make_execution(S.SCHEDULED, worker=make_worker("w2"))
    given_back = executions.give_back(
        worker_id=scheduled.worker_id or 0, now=NOW, actor="w1", unstarted=[unstarted]
    )
    assert given_back == {scheduled.pk, unstarted.pk}
    for each in (scheduled, unstarted):
        row = reread(each)
        assert (row.status, row.attempt, row.retry_count) == ("requested", 1, 0)
    assert (reread(runs).status, reread(elsewhere).status) == ("running", "scheduled")
    assert tasks(sent) == [messages.SCHEDULE]
    assert claim(scheduled) == [], "the attempt was given back"


def test_idempotent_action_that_its_worker_had_to_stop_goes_elsewhere_and_counts_for_nothing(
    sent: list[messages.Message],
) -> None:
    (claimed,) = claim(make_execution(S.SCHEDULED, action=make_action("a.b", idempotent=True)))
    assert finish(claimed, Reason.WORKER_STOPPED)
    row = reread(claimed)
    assert (row.status, row.reason, row.retry_count) == ("requested", "worker_stopped", 0)
    assert events(claimed) == ["claim", "give_back"]
    assert row.result == RESULT, "why, until the next attempt says something"
    assert tasks(sent) == [messages.SCHEDULE]


@pytest.mark.parametrize(
    ("idempotent", "now"),
    [(False, LATER), (True, NOW + timedelta(days=2))],
    ids=["not idempotent", "past its deadline"],
)
def test_other_action_that_its_worker_had_to_stop_is_abandoned(
    sent: list[messages.Message], idempotent: bool, now: datetime
) -> None:
    retry = {"max_attempts": 3, "retry_on": ["worker_stopped"]}
    action = make_action("a.b", idempotent=idempotent, retry_policy=retry)
    (claimed,) = claim(make_execution(S.SCHEDULED, action=action))
    assert finish(claimed, Reason.WORKER_STOPPED, now=now)
    row = reread(claimed)
    assert (row.status, row.reason) == ("abandoned", "worker_stopped")
    assert tasks(sent) == [messages.COMPLETED]


def test_what_was_being_cancelled_when_its_worker_had_to_stop_is_cancelled() -> None:
    (claimed,) = claim(make_execution(S.SCHEDULED, action=make_action("a.b", idempotent=True)))
    executions.cancel(execution_id=claimed.pk, actor="ada", now=NOW)
    assert finish(claimed, Reason.WORKER_STOPPED)
    assert reread(claimed).status == "cancelled"


# --- cancel ------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["requested", "scheduling", "scheduled"])
def test_cancel_before_the_claim_is_final_at_once(
    status: str, sent: list[messages.Message]
) -> None:
    execution = make_execution(status)
    cancelled = executions.cancel(execution_id=execution.pk, actor="ada", now=NOW)
    assert (cancelled.status, cancelled.reason) == ("cancelled", "cancelled")
    assert cancelled.result is not None
    assert cancelled.result["failed_by"] == "ada"
    assert tasks(sent) == [messages.COMPLETED]
    if status == "scheduled":
        assert claim(execution) == []


def test_cancel_of_a_running_execution_tells_its_worker(sent: list[messages.Message]) -> None:
    running = make_execution(S.RUNNING)
    canceling = executions.cancel(execution_id=running.pk, actor="ada", now=NOW)
    assert (canceling.status, canceling.cancel_requested_at) == ("canceling", NOW)
    assert canceling.run_deadline_at == NOW + timedelta(seconds=20), "grace, then the sweep"
    (message,) = sent
    assert (message.task, message.kwargs) == (
        messages.CANCEL,
        {"execution_id": str(running.pk), "attempt": 1},
    )
    (started,) = executions.started(worker_id=running.worker_id or 0, incarnation=1)
    assert started.key == (running.pk, 1)
    assert started.status == "canceling", "found without the message, too"
    assert executions.started(worker_id=running.worker_id or 0, incarnation=2) == []


def test_cancel_does_not_lengthen_the_time_limit() -> None:
    soon = NOW + timedelta(seconds=3)
    running = make_execution(S.RUNNING, run_deadline_at=soon)
    assert executions.cancel(execution_id=running.pk, actor="a", now=NOW).run_deadline_at == soon


def test_cancel_twice_is_harmless(sent: list[messages.Message]) -> None:
    running = make_execution(S.RUNNING)
    for _ in range(2):
        executions.cancel(execution_id=running.pk, actor="ada", now=NOW)
    assert events(running) == ["request_cancel"]
    assert len(sent) == 1


@pytest.mark.parametrize(
    ("told", "status", "reason"),
    [
        (Reason.CANCELLED_RUNNING, "cancelled", "cancelled_running"),
        (Reason.SUCCEEDED, "completed", "succeeded"),
        (Reason.ACTION_FAILED, "failed", "action_failed"),
        (Reason.RUN_TIMEOUT, "cancelled", "cancelled_running"),
        (Reason.PROCESS_LOST, "abandoned", "process_lost"),
    ],
)
def test_worker_that_knows_of_no_cancel_ends_what_is_canceling(
    told: Reason, status: str, reason: str
) -> None:
    (claimed,) = claim(make_execution(S.SCHEDULED))
    executions.cancel(execution_id=claimed.pk, actor="ada", now=NOW)
    assert finish(claimed, told)
    assert (reread(claimed).status, reread(claimed).reason) == (status, reason)


def test_failure_that_was_to_be_retried_is_not_once_a_cancel_was_asked_for() -> None:
    action = make_action(
        "core.again", retry_policy={"max_attempts": 3, "retry_on": ["action_failed"]}
    )
    (claimed,) = claim(make_execution(S.SCHEDULED, action=action))
    executions.cancel(execution_id=claimed.pk, actor="ada", now=NOW)
    assert finish(claimed, Reason.ACTION_FAILED)
    assert (reread(claimed).status, reread(claimed).attempt) == ("failed", 1)


@pytest.mark.parametrize("status", ["completed", "failed", "timeout", "cancelled", "abandoned"])
def test_what_is_over_cannot_be_cancelled(status: str) -> None:
    execution = make_execution(status)
    with pytest.raises(executions.AlreadyOver, match=status):
        executions.cancel(execution_id=execution.pk, actor="ada", now=LATER)
    assert not ExecutionEvent.objects.exists()


def test_unknown_execution_cannot_be_cancelled() -> None:
    known = make_execution()
    unknown = Execution(action=known.action).pk
    with pytest.raises(executions.UnknownExecution, match=str(unknown)):
        executions.cancel(execution_id=unknown, actor="ada", now=NOW)
