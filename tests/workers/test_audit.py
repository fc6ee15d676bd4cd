"""What a worker does about what the database says has started on it, and about its time limits."""

from __future__ import annotations

from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.core import executions
from orchestrator.core.executions import Ended
from orchestrator.core.models import Execution
from orchestrator.core.reasons import Reason
from orchestrator.core.states import ExecutionStatus
from tests.factories import NOW, make_action, make_execution, make_worker
from tests.locks import held
from tests.rows import events, reread
from workers.agent import Agent
from workers.audit import Audit

pytestmark = pytest.mark.usefixtures("database", "sent")

S = ExecutionStatus
STEP = timedelta(seconds=600)


@pytest.fixture
def audit(w1: Agent) -> Audit:
    return w1.heartbeat.audit


def claimed(agent: Agent, *, runs: bool = True, **values: Any) -> Execution:
    """An execution that this agent has claimed; it runs, or its claim's answer was lost."""
    row = make_execution(S.SCHEDULED, **values)
    (execution,) = executions.claim(
        [row.key], worker_id=agent.worker_id, incarnation=1, now=NOW, actor="w1"
    )
    if runs:
        agent.desk.in_hand.take([execution.key])
        attempt: Any = SimpleNamespace(
            execution=execution, key=execution.key, claimed_at=0.0, is_canceling=False
        )
        agent.desk.claimed[execution.key] = attempt
    return execution


def compare(audit: Audit, times: int = 1) -> None:
    for _ in range(times):
        audit.compare(now=NOW)


# --- what is in nobody's hand ------------------------------------------------------------------


def test_claim_without_an_answer_is_given_back_at_the_second_heartbeat(
    w1: Agent, audit: Audit
) -> None:
    lost, runs = claimed(w1, runs=False), claimed(w1)
    compare(audit)
    assert reread(lost).status == "running", "its answer may be on its way"

    compare(audit)
    row = reread(lost)
    assert (row.status, row.reason, row.retry_count) == ("requested", "given_back", 0)
    assert events(lost) == ["claim", "give_back"]
    assert reread(runs).status == "running"

    compare(audit, 3)
    assert events(lost) == ["claim", "give_back"]
    assert reread(runs).status == "running"


def test_what_comes_into_a_hand_between_two_heartbeats_stays(w1: Agent, audit: Audit) -> None:
    execution = claimed(w1, runs=False)
    compare(audit)
    w1.desk.in_hand.take([execution.key])
    compare(audit)
    w1.desk.in_hand.let_go([execution.key])
    compare(audit)
    assert reread(execution).status == "running", "two in a row, counted from the last time"


def test_what_ends_between_the_question_and_the_look_into_the_hand_stays_ended(
    w1: Agent, audit: Audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    execution = claimed(w1)
    before = executions.started(worker_id=w1.worker_id, incarnation=1)
    executions.finish([Ended(execution, Reason.SUCCEEDED, {})], now=NOW, actor="w1")
    w1.desk.in_hand.let_go([execution.key])
    with monkeypatch.context() as patch:
        patch.setattr("workers.audit.executions.started", lambda **_: before)
        compare(audit)
    compare(audit, 2)
    assert events(execution) == ["claim", "complete"]


def test_cancelled_claim_without_an_answer_is_over(w1: Agent, audit: Audit) -> None:
    lost = claimed(w1, runs=False)
    executions.cancel(execution_id=lost.pk, actor="ada", now=NOW)
    compare(audit)
    assert reread(lost).status == "canceling"
    compare(audit)
    assert reread(lost).status == "cancelled"


def test_what_another_life_or_another_worker_runs_is_left_alone(w1: Agent, audit: Audit) -> None:
    others = [
        make_execution(S.RUNNING, worker_incarnation=2),
        make_execution(S.RUNNING, worker=make_worker("w2")),
    ]
    compare(audit, 3)
    assert [reread(each).status for each in others] == ["running", "running"]


def test_worker_that_leaves_gives_back_at_once(w1: Agent, audit: Audit) -> None:
    lost, runs = claimed(w1, runs=False), claimed(w1)
    audit.settle(now=NOW)
    assert (reread(lost).status, reread(runs).status) == ("requested", "running")


def test_cancel_whose_message_was_lost_is_found(
    w1: Agent, audit: Audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[Any] = []
    monkeypatch.setattr(w1.canceller, "cancel", stopped.append)
    execution = claimed(w1)
    executions.cancel(execution_id=execution.pk, actor="ada", now=NOW)
    compare(audit)
    assert stopped == [execution.key]


# --- the clock of the database -----------------------------------------------------------------


@pytest.fixture
def running_for_seconds(monkeypatch: pytest.MonkeyPatch) -> Any:
    """How long the worker has counted since it claimed what it runs."""
    clock = SimpleNamespace(seconds=3.0)
    monkeypatch.setattr("workers.audit.time.monotonic", lambda: clock.seconds)
    return clock


def test_clock_that_agrees_moves_no_time_limit(
    w1: Agent, audit: Audit, running_for_seconds: Any
) -> None:
    execution = claimed(w1, timeout_seconds=30)
    audit.compare(now=NOW + timedelta(seconds=5))
    assert reread(execution).run_deadline_at == NOW + timedelta(seconds=40)


@pytest.mark.parametrize("step", [STEP, -STEP], ids=["forward", "back"])
def test_time_limit_follows_a_clock_that_was_set(
    w1: Agent, audit: Audit, running_for_seconds: Any, step: timedelta
) -> None:
    execution = claimed(w1, timeout_seconds=30)
    now = NOW + step + timedelta(seconds=3)
    audit.compare(now=now)
    row = reread(execution)
    assert row.run_deadline_at == now + timedelta(seconds=27 + 10)
    assert row.deadline_at == execution.deadline_at
    executions.sweep(now=now)
    assert reread(execution).status == "running", "no false timeout"
    assert events(execution) == ["claim"]


def test_time_limit_never_goes_beyond_the_deadline(
    w1: Agent, audit: Audit, running_for_seconds: Any
) -> None:
    deadline_at = NOW + timedelta(seconds=620)
    execution = claimed(w1, timeout_seconds=300, deadline_at=deadline_at)
    audit.compare(now=NOW + STEP)
    assert reread(execution).run_deadline_at == deadline_at + timedelta(seconds=10)


def test_time_limit_of_what_is_being_cancelled_stays(
    w1: Agent, audit: Audit, running_for_seconds: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(w1.canceller, "cancel", lambda key: None)
    execution = claimed(w1)
    executions.cancel(execution_id=execution.pk, actor="ada", now=NOW)
    limit: datetime | None = reread(execution).run_deadline_at
    audit.compare(now=NOW + STEP)
    assert reread(execution).run_deadline_at == limit


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_row_that_another_transaction_has_does_not_keep_a_heartbeat_waiting(
    w1: Agent, audit: Audit, running_for_seconds: Any
) -> None:
    one, other = claimed(w1), claimed(w1)
    lost = claimed(w1, runs=False)
    now = NOW + STEP
    with held(one), held(lost):
        audit.compare(now=now)
        audit.compare(now=now)
        assert reread(one).run_deadline_at == one.run_deadline_at
        assert reread(other).run_deadline_at != other.run_deadline_at
        assert reread(lost).status == "running"
    audit.compare(now=now)
    assert reread(one).run_deadline_at == reread(other).run_deadline_at
    assert reread(lost).status == "requested"


def test_idempotent_action_is_not_begun_by_an_audit_twice(w1: Agent, audit: Audit) -> None:
    lost = claimed(w1, runs=False, action=make_action("a.b", idempotent=True))
    compare(audit, 5)
    assert events(lost) == ["claim", "give_back"]


# --- cancels -------------------------------------------------------------------------------------


def test_only_what_its_row_says_is_stopped_and_a_message_says_nothing(
    w1: Agent, audit: Audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[Any] = []
    monkeypatch.setattr(w1.canceller, "cancel", stopped.append)
    runs, cancelled, unknown = claimed(w1), claimed(w1), claimed(w1, runs=False)
    for row in (cancelled, unknown):
        executions.cancel(execution_id=row.pk, actor="a test", now=NOW)

    audit.look_for_cancels()
    assert stopped == [cancelled.key]
    assert runs.key not in stopped


def test_attempt_that_is_over_is_stopped_although_nobody_cancelled_it(
    w1: Agent, audit: Audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database's clock was set forward: its deadline has passed, and its worker counts on."""
    stopped: list[Any] = []
    monkeypatch.setattr(w1.canceller, "cancel", stopped.append)
    runs, over, recorded = claimed(w1), claimed(w1), claimed(w1)
    for row in (over, recorded):
        Execution.objects.filter(pk=row.pk).update(deadline_at=NOW, run_deadline_at=NOW)
    del w1.desk.claimed[recorded.key]  # it has ended here meanwhile
    executions.sweep(now=NOW + timedelta(seconds=1))
    assert reread(over).status == "timeout"

    audit.look_for_cancels()

    assert stopped == [over.key]
    assert runs.key in w1.desk.claimed


def test_look_for_cancels_costs_one_statement_and_none_while_nothing_is_in_hand(
    w1: Agent, audit: Audit, django_assert_num_queries: Any
) -> None:
    with django_assert_num_queries(0):
        audit.look_for_cancels()
    claimed(w1)
    with django_assert_num_queries(1):
        audit.look_for_cancels()
