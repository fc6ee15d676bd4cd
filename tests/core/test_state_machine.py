"""Every status, every event: what may happen happens once, and leaves one row of history."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from orchestrator.core.models import Execution, ExecutionEvent
from orchestrator.core.reasons import Reason
from orchestrator.core.state_machine import Move, TransitionConflict, UnknownEvent
from orchestrator.core.state_machine import transition as carry_out
from orchestrator.core.states import (
    EXECUTIONS,
    OPEN,
    TERMINAL,
    TRANSITIONS,
    WHO_MOVES_IT_ON,
    ExecutionStatus,
)
from tests import rows
from tests.factories import NOW, make_action, make_execution, make_worker
from tests.races import at_once
from tests.rows import reread

pytestmark = pytest.mark.usefixtures("database")

S = ExecutionStatus
LATER = NOW + timedelta(seconds=7)

REASONS = {
    "answer": Reason.ANSWERED,
    "complete": Reason.SUCCEEDED,
    "fail": Reason.ACTION_FAILED,
    "time_out": Reason.RUN_TIMEOUT,
    "expire": Reason.QUEUE_TTL_EXPIRED,
    "reject": Reason.NO_WORKER_AVAILABLE,
    "give_back": Reason.GIVEN_BACK,
    "retry": Reason.WORKER_LOST,
    "cancel": Reason.CANCELLED,
    "confirm_cancel": Reason.CANCELLED_RUNNING,
    "abandon": Reason.WORKER_LOST,
}
"""What each event is told for; the others need none."""

STAMPS: dict[Any, str] = {
    S.SCHEDULED: "scheduled_at",
    S.RUNNING: "started_at",
    S.CANCELING: "cancel_requested_at",
}

PAIRS = [(status, event) for status in S for event in TRANSITIONS]
ALLOWED = [(status, event) for status, event in PAIRS if EXECUTIONS.allows(event, status)]
FORBIDDEN = [pair for pair in PAIRS if pair not in ALLOWED]


def values_of(event: str) -> dict[str, Any]:
    """What the event's caller sets besides, of every kind of column."""
    later = LATER + timedelta(seconds=30)
    values: dict[str, dict[str, Any]] = {
        "schedule": {
            "worker": make_worker("w2").pk,
            "start_by": later,
            "next_retry_at": None,
            "wait_reason": "",
        },
        "wait": {"wait_reason": "no workers available", "next_retry_at": later},
        "claim": {"worker_incarnation": 3, "run_deadline_at": later},
        "retry": {"retry_count": 1, "next_retry_at": later, "start_by": None},
        "request_cancel": {"run_deadline_at": later},
        "give_back": {"next_retry_at": later},
    }
    return values.get(event, {"result": {"message": "ä 漢 'quoted' %s", "list": [1, None, 2.5]}})


@pytest.mark.parametrize(("status", "event"), ALLOWED)
def test_allowed_event_moves_the_row_and_leaves_one_row_of_history(
    status: ExecutionStatus, event: str
) -> None:
    rule, reason = TRANSITIONS[event], REASONS.get(event)
    execution = make_execution(status)
    bystander = rows.values(make_execution(status))
    values = values_of(event)
    before = rows.values(execution)

    moved = carry_out(execution, event, now=LATER, actor="tester", reason=reason, **values)

    attempt = before["attempt"] + (1 if rule.new_attempt else 0)
    expected = before | values | {"status": rule.target.value, "attempt": attempt}
    if "worker" in expected:
        expected["worker_id"] = expected.pop("worker")
    if reason is not None:
        expected["reason"] = reason.value
    if rule.target in TERMINAL:
        expected["ended_at"] = LATER
    elif rule.target in STAMPS:
        expected[STAMPS[rule.target]] = LATER
    assert rows.values(execution) == expected
    assert (moved.status, moved.attempt) == (rule.target, attempt)
    (entry,) = ExecutionEvent.objects.of(execution.pk).values()
    assert entry == {
        "id": entry["id"],
        "execution_id": execution.pk,
        "event": event,
        "from_status": status.value,
        "to_status": rule.target.value,
        "attempt": attempt,
        "actor": "tester",
        "reason": str(reason or ""),
        "at": LATER,
    }
    assert ExecutionEvent.objects.count() == 1
    assert rows.values(Execution(pk=bystander["id"])) == bystander


@pytest.mark.parametrize(("status", "event"), FORBIDDEN)
def test_forbidden_event_leaves_the_row_untouched(status: ExecutionStatus, event: str) -> None:
    execution = make_execution(status)
    before = rows.values(execution)
    with pytest.raises(TransitionConflict):
        carry_out(execution, event, now=LATER, actor="tester", reason=REASONS.get(event))
    # and with a caller that believes it to be somewhere else, where the event is allowed
    for believed in TRANSITIONS[event].sources:
        move = Move(execution.pk, believed, execution.attempt, values_of(event))
        assert Execution.objects.transition_many(event, [move], now=LATER, actor="tester") == set()
    assert rows.values(execution) == before
    assert not ExecutionEvent.objects.exists()


@pytest.mark.parametrize(("status", "event"), ALLOWED)
def test_attempt_of_the_caller_is_compared_too(status: ExecutionStatus, event: str) -> None:
    execution = make_execution(status)
    before = rows.values(execution)
    for attempt in (execution.attempt + 1, execution.attempt - 1, 1_000):
        move = Move(execution.pk, status, attempt, values_of(event))
        assert Execution.objects.transition_many(event, [move], now=LATER, actor="late") == set()
    assert rows.values(execution) == before
    assert not ExecutionEvent.objects.exists()


def test_every_status_says_who_moves_it_on_and_every_open_one_can_be_left() -> None:
    assert set(WHO_MOVES_IT_ON) == set(S) == OPEN | TERMINAL
    left = {status for rule in TRANSITIONS.values() for status in rule.sources}
    assert left == OPEN
    assert {rule.target for rule in TRANSITIONS.values()} == set(S)


def test_unknown_event_is_an_error_of_its_own() -> None:
    with pytest.raises(UnknownEvent, match="'finish'"):
        carry_out(make_execution(), "finish", now=LATER, actor="tester")


def test_batch_moves_what_compares_and_tells_which() -> None:
    wanted = [make_execution(S.RUNNING) for _ in range(5)]
    gone = make_execution(S.COMPLETED)
    moves = [Move(each.pk, S.RUNNING, 1, {"result": {"n": n}}) for n, each in enumerate(wanted)]
    moves.append(Move(gone.pk, S.RUNNING, 1, {"result": {"n": 99}}))
    moved = Execution.objects.transition_many(
        "complete", moves, now=LATER, actor="w1", reason=Reason.SUCCEEDED
    )
    assert moved == {each.pk for each in wanted}
    results = dict(Execution.objects.values_list("pk", "result"))
    assert [results[each.pk] for each in wanted] == [{"n": n} for n in range(5)]
    assert results[gone.pk] is None
    assert set(ExecutionEvent.objects.values_list("execution_id", flat=True)) == moved


def test_same_move_twice_in_one_batch_counts_once() -> None:
    execution = make_execution(S.REQUESTED)
    move = Move(execution.pk, S.REQUESTED, 0, values_of("schedule"))
    assert Execution.objects.transition_many(
        "schedule", [move, move], now=LATER, actor="tester"
    ) == {execution.pk}
    assert rows.values(execution)["attempt"] == 1
    assert ExecutionEvent.objects.count() == 1


def test_empty_batch_does_nothing() -> None:
    assert Execution.objects.transition_many("schedule", [], now=LATER, actor="tester") == set()


def test_history_and_status_are_undone_together() -> None:
    execution = make_execution(S.RUNNING)
    with transaction.atomic():
        carry_out(execution, "complete", now=LATER, actor="w1", reason=Reason.SUCCEEDED)
        transaction.set_rollback(True)
    assert rows.values(execution)["status"] == "running"
    assert not ExecutionEvent.objects.exists()


@pytest.mark.parametrize("status", sorted(TERMINAL))
@pytest.mark.parametrize("target", ["running", "requested", "failed", "completed"])
def test_database_itself_keeps_terminal_statuses_final(status: str, target: str) -> None:
    if status == target:
        return
    execution = make_execution(status)
    before = rows.values(execution)
    reopened: dict[str, Any] = {"status": target}
    if target not in TERMINAL:
        reopened |= {"ended_at": None}
    for change in (lambda: _update(execution, reopened), lambda: _update_raw(execution, target)):
        with pytest.raises(IntegrityError, match="terminal status is final"):
            change()
    assert rows.values(execution) == before


def _update(execution: Execution, values: dict[str, Any]) -> None:
    with transaction.atomic():
        Execution.objects.filter(pk=execution.pk).update(**values)


def _update_raw(execution: Execution, target: str) -> None:
    key = execution.pk if connection.vendor == "postgresql" else execution.pk.hex
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "UPDATE orchestrator_execution SET status = %s, ended_at = NULL WHERE id = %s",
            [target, key],
        )


@pytest.mark.parametrize(
    "broken",
    [
        {"status": "resting"},
        {"status": "completed"},
        {"ended_at": NOW, "reason": "succeeded"},
        {"status": "failed", "ended_at": NOW},
        {"status": "scheduled"},
        {"status": "running"},
        {"deadline_at": NOW - timedelta(days=2)},
        {"timeout_seconds": 0},
        {"attempt": -1},
    ],
    ids=str,
)
def test_database_refuses_rows_that_cannot_be(broken: dict[str, Any]) -> None:
    execution = make_execution()
    with pytest.raises(IntegrityError):
        _update(execution, broken)


# --- races -------------------------------------------------------------------------------------


def mover(execution: Execution, event: str, actor: str, at: datetime = LATER) -> Callable[[], Any]:
    seen = reread(execution)
    return lambda: carry_out(
        seen, event, now=at, actor=actor, reason=REASONS.get(event), **values_of(event)
    )


@pytest.mark.parametrize("attempt", range(5))
def test_racing_writers_have_one_winner(attempt: int) -> None:
    execution = make_execution(S.RUNNING)
    events = ["complete", "fail", "time_out", "abandon", "retry", "request_cancel"]
    outcomes = at_once(*[mover(execution, event, event) for event in events])
    won = [each for each in outcomes if isinstance(each, Execution)]
    lost = [each for each in outcomes if isinstance(each, TransitionConflict)]
    assert (len(won), len(lost)) == (1, len(events) - 1), outcomes
    (entry,) = ExecutionEvent.objects.of(execution.pk)
    assert rows.values(execution)["status"] == entry.to_status
    assert entry.actor == entry.event


def test_racing_schedulers_raise_the_attempt_once() -> None:
    execution = make_execution(S.REQUESTED)
    make_worker("w2")
    outcomes = at_once(*[mover(execution, "schedule", f"executor {n}") for n in range(6)])
    assert sum(isinstance(each, Execution) for each in outcomes) == 1, outcomes
    assert rows.values(execution)["attempt"] == 1


@pytest.mark.parametrize("wait_for_locks", [True, False])
def test_overlapping_batches_share_the_rows_and_do_not_deadlock(wait_for_locks: bool) -> None:
    action, worker = make_action(), make_worker()
    rows = [make_execution(S.RUNNING, action=action, worker=worker) for _ in range(60)]
    moves = [Move(each.pk, S.RUNNING, 1, {"result": None}) for each in rows]

    def batch(moves: list[Move], event: str) -> Callable[[], set[Any]]:
        reason = REASONS[event]
        return lambda: Execution.objects.transition_many(
            event, moves, now=LATER, actor=event, reason=reason, wait_for_locks=wait_for_locks
        )

    outcomes = at_once(
        batch(moves[:40], "complete"), batch(moves[::-1], "fail"), batch(moves[20:], "abandon")
    )
    shares = [each for each in outcomes if isinstance(each, set)]
    assert len(shares) == 3, outcomes
    assert sum(map(len, shares)) == len(rows)
    assert set().union(*shares) == {each.pk for each in rows}
    assert ExecutionEvent.objects.count() == len(rows)
