"""The guarantee: what is overdue or lost ends, with no message, worker or beat at work."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from orchestrator.core import executions, messages
from orchestrator.core.executions import attempts, sweeping
from orchestrator.core.models import ExecutionEvent
from orchestrator.core.reasons import Reason
from orchestrator.core.states import OPEN, ExecutionStatus
from tests.factories import NOW, make_action, make_execution, make_worker
from tests.logged import logged
from tests.rows import ended, reread

pytestmark = pytest.mark.usefixtures("database", "sent")

S = ExecutionStatus
NONE = {"deadline_passed": 0, "not_started": 0, "not_ended": 0, "cancel_unconfirmed": 0}
RETRY = {"max_attempts": 2, "backoff": "none"}


def soon(**values: float) -> dict[str, Any]:
    return {name: NOW + timedelta(seconds=seconds) for name, seconds in values.items()}


CASES: list[tuple[ExecutionStatus, dict[str, Any], str, tuple[str, str]]] = [
    (S.REQUESTED, soon(deadline_at=1), "deadline_passed", ("failed", "deadline_passed")),
    (S.SCHEDULING, soon(deadline_at=1), "deadline_passed", ("failed", "deadline_passed")),
    (S.SCHEDULED, soon(deadline_at=1), "deadline_passed", ("failed", "deadline_passed")),
    (S.SCHEDULED, soon(start_by=1), "not_started", ("failed", "scheduled_timeout")),
    (S.RUNNING, soon(run_deadline_at=1), "not_ended", ("timeout", "run_deadline_passed")),
    (
        S.CANCELING,
        soon(run_deadline_at=1),
        "cancel_unconfirmed",
        ("cancelled", "cancel_unconfirmed"),
    ),
]


@pytest.mark.parametrize(("status", "due", "kind", "end"), CASES)
def test_sweep_ends_what_is_overdue_and_not_a_moment_earlier(
    status: ExecutionStatus,
    due: dict[str, Any],
    kind: str,
    end: tuple[str, str],
    sent: list[messages.Message],
) -> None:
    gone = make_worker(status="inactive")
    execution = make_execution(status, worker=gone, **due)
    bystander = make_execution(status)
    (due_at,) = due.values()
    assert executions.sweep(now=due_at - timedelta(microseconds=1)) == NONE
    assert sent == []
    assert executions.sweep(now=due_at) == NONE | {kind: 1}
    assert ended(execution) == end
    assert ended(bystander)[0] == status
    result = reread(execution).result
    assert result is not None
    assert result["failed_by"] == "execution_timeout_monitor"
    assert [message.task for message in sent] == [messages.COMPLETED]
    assert executions.sweep(now=due_at) == NONE, "sweeping again finds nothing"


def test_what_is_placed_while_the_sweep_looks_at_deadlines_ends_by_its_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has no later `start_by`; the look at deadlines missed it, that at dispatches finds it."""
    late: list[Any] = []

    def end_all(overdue: Any, *, reason: Reason, **values: Any) -> int:
        ends = attempts.end_all(overdue, reason=reason, **values)
        if reason is Reason.DEADLINE_PASSED and not late:
            late.append(make_execution(S.SCHEDULED, start_by=NOW, deadline_at=NOW))
        return ends

    monkeypatch.setattr(sweeping, "end_all", end_all)
    assert executions.sweep(now=NOW) == NONE
    assert executions.sweep(now=NOW) == NONE | {"deadline_passed": 1}
    assert ended(late[0]) == ("failed", "deadline_passed")


@pytest.mark.parametrize("status", sorted(OPEN))
def test_nothing_is_open_after_its_deadline(status: str) -> None:
    execution = make_execution(status, deadline_at=NOW)
    executions.sweep(now=NOW + timedelta(seconds=10))
    assert reread(execution).is_terminal


@pytest.mark.parametrize("status", [S.RUNNING, S.CANCELING])
def test_what_runs_has_five_seconds_to_stop_at_its_deadline(status: ExecutionStatus) -> None:
    execution = make_execution(status, deadline_at=NOW)
    in_time = NOW + timedelta(seconds=5)
    assert executions.sweep(now=in_time - timedelta(microseconds=1)) == NONE
    executions.sweep(now=in_time)
    assert reread(execution).is_terminal


def test_sweep_leaves_what_has_ended_alone() -> None:
    for status in set(S) - OPEN:
        make_execution(status)
    assert executions.sweep(now=NOW + timedelta(days=30)) == NONE
    assert not ExecutionEvent.objects.exists()


def test_sweep_retries_where_the_policy_allows(sent: list[messages.Message]) -> None:
    action = make_action("core.again", retry_policy=RETRY)
    never_started = make_execution(S.SCHEDULED, action=action, start_by=NOW)
    not_idempotent = make_execution(S.RUNNING, action=action, run_deadline_at=NOW)
    assert executions.sweep(now=NOW) == NONE | {"not_started": 1, "not_ended": 1}
    assert ended(never_started) == ("requested", "scheduled_timeout")
    assert ended(not_idempotent)[0] == "timeout"
    assert {message.task for message in sent} == {messages.SCHEDULE, messages.COMPLETED}


def test_each_that_timed_out_is_logged_with_its_ids_and_the_text_says_if_it_tries_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    action = make_action("core.again", retry_policy=RETRY)
    gone = make_worker(status="inactive")
    not_started = make_execution(S.SCHEDULED, action=action, worker=gone, start_by=NOW, attempt=3)
    not_ended = make_execution(S.RUNNING, action=action, run_deadline_at=NOW)
    executions.sweep(now=NOW)
    (first,) = logged(caplog, "attempt timed out, tries again")
    (last,) = logged(caplog, "execution timed out")
    assert first["execution_id"] == str(not_started.pk)
    assert last["execution_id"] == str(not_ended.pk)
    assert (first["action"], first["attempt"]) == ("core.again", 3)
    assert first["worker_id"] == not_started.worker_id
    assert (first["reason"], first["by"]) == ("scheduled_timeout", "execution_timeout_monitor")
    assert (first["tries_again"], last["tries_again"]) == (True, False)
    assert first["level"] == last["level"] == "warning"


def test_attempt_that_was_lost_is_not_logged_as_an_end_while_it_tries_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gone = make_worker(status="inactive", gone_at=NOW)
    again = make_action("core.again", retry_policy=RETRY, idempotent=True)
    lost, over = (
        make_execution(S.RUNNING, worker=gone, action=action)
        for action in (again, make_action("core.once"))
    )
    executions.settle_lost(now=NOW)
    (line,) = logged(caplog, "attempt lost, tries again")
    assert (line["execution_id"], line["tries_again"]) == (str(lost.pk), True)
    (line,) = logged(caplog, "execution abandoned")
    assert (line["execution_id"], line["tries_again"]) == (str(over.pk), False)


def test_passed_deadline_is_not_retried() -> None:
    action = make_action("core.again", retry_policy=RETRY, idempotent=True)
    execution = make_execution(S.RUNNING, action=action, deadline_at=NOW)
    executions.sweep(now=NOW + timedelta(seconds=10))
    assert ended(execution)[0] == "timeout"


def test_dispatch_that_a_worker_was_too_busy_for_goes_back_and_counts_for_no_policy(
    sent: list[messages.Message],
) -> None:
    execution = make_execution(S.SCHEDULED, start_by=NOW)
    assert executions.sweep(now=NOW) == NONE | {"not_started": 1}
    assert ended(execution) == ("requested", "scheduled_timeout")
    assert reread(execution).retry_count == 0
    assert [message.task for message in sent] == [messages.SCHEDULE]


def test_sweep_works_through_more_than_one_batch(settings: Any) -> None:
    settings.MUSTER = replace(settings.MUSTER, batch_size=4)
    action, worker = make_action(), make_worker()
    for _ in range(11):
        make_execution(S.SCHEDULED, action=action, worker=worker, start_by=NOW)
    assert executions.sweep(now=NOW)["not_started"] == 11


def test_kind_that_cannot_be_ended_keeps_no_other_from_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    past_deadline = make_execution(S.REQUESTED, deadline_at=NOW)
    not_started = make_execution(S.SCHEDULED, start_by=NOW)
    not_ended = make_execution(S.RUNNING, run_deadline_at=NOW)

    def end_all(overdue: Any, *, reason: Reason, **values: Any) -> int:
        if reason is Reason.DEADLINE_PASSED:
            raise OperationalError("deadlock detected")
        return attempts.end_all(overdue, reason=reason, **values)

    monkeypatch.setattr(sweeping, "end_all", end_all)
    with pytest.raises(OperationalError, match="deadlock"):
        executions.sweep(now=NOW)
    assert ended(past_deadline)[0] == "requested"
    assert [ended(each)[0] for each in (not_started, not_ended)] == ["requested", "timeout"]


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_sweep_does_not_walk_the_history_for_the_few_that_are_open() -> None:
    """By id, PostgreSQL expects a batch near the end of the table: nearly all of the history has a
    deadline that has passed."""
    with CaptureQueriesContext(connection) as queries:
        executions.sweep(now=NOW)
    reads = [each["sql"] for each in queries if "FOR NO KEY UPDATE" in each["sql"]]
    assert len(reads) == len(sweeping.KINDS)
    columns = [sql.partition("ORDER BY ")[2].partition(" LIMIT")[0] for sql in reads]
    names = [re.findall(r'\."(\w+)"', each) for each in columns]
    assert names == len(reads) * [["queue", "priority", "id"]], "the order of execution_open"
