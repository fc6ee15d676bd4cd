"""An action that says "not now": its execution waits, and neither retry nor attempt is spent."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import DatabaseError

from orchestrator.core import executions, fleet, messages
from orchestrator.core.executions import RETRY_AFTER, Ended, deferring
from orchestrator.core.models import Action, Execution, ExecutionEvent, Worker
from orchestrator.core.reasons import Known, Reason
from orchestrator.core.states import ExecutionStatus
from orchestrator.queues.models import WorkQueue
from tests.core.scheduling import schedule
from tests.factories import NOW, make_action, make_execution, make_worker, seconds
from tests.rows import ended, events, reread

pytestmark = pytest.mark.usefixtures("database", "sent")

S = ExecutionStatus
LATER = NOW + seconds(1)


def started(**values: Any) -> Execution:
    """As its worker has claimed it."""
    row = make_execution(S.SCHEDULED, **values)
    return claim(row, NOW)


def claim(row: Execution, now: datetime) -> Execution:
    (claimed,) = executions.claim(
        [row.key], worker_id=row.worker_id or 0, incarnation=1, now=now, actor="w1"
    )
    return claimed


def defer(
    claimed: Execution, *, now: datetime = LATER, after_seconds: float | None = None
) -> set[Any]:
    result: dict[str, Any] = {"message": "the press is cold"}
    if after_seconds is not None:
        result[RETRY_AFTER] = after_seconds
    ended = Ended(claimed, Reason.TASK_REJECTED, result)
    return executions.finish([ended], now=now, actor="w1")


def place(row: Execution, now: datetime) -> None:
    """Its worker takes it again, long before its pause is over."""
    Worker.objects.update(heartbeat_at=now, queue_pauses={})
    schedule(reread(row), now=now)


def once(**values: Any) -> Action:
    return make_action("core.once", retry_policy={"max_attempts": 1}, **values)


def test_deferral_goes_back_and_spends_neither_a_retry_nor_an_attempt(
    sent: list[messages.Message],
) -> None:
    claimed = started(action=once())
    assert defer(claimed) == {claimed.key}
    row = reread(claimed)
    assert (row.status, row.reason) == ("requested", "task_rejected")
    assert (row.attempt, row.retry_count, row.lost_workers) == (1, 0, 0)
    assert row.next_retry_at == LATER + seconds(5)
    assert (row.start_by, row.run_deadline_at, row.ended_at) == (None, None, None)
    assert row.result == {"message": "the press is cold", RETRY_AFTER: 5.0}
    assert sent == [], "the backlog takes it up when it is due"
    event = ExecutionEvent.objects.get(event="defer")
    assert (event.actor, event.reason, event.attempt) == ("w1", "task_rejected", 1)


def test_action_that_is_not_idempotent_runs_again_as_by_its_own_word_it_has_not_begun() -> None:
    assert Reason.TASK_REJECTED.known is Known.NEVER_STARTED
    claimed = started(action=once(idempotent=False))
    defer(claimed)
    place(claimed, LATER + seconds(5))
    row = reread(claimed)
    assert (row.status, row.attempt) == ("scheduled", 2), "the fence grows with each dispatch"


def test_each_deferral_waits_twice_as_long_up_to_a_minute() -> None:
    row, now, waits = make_execution(S.SCHEDULED, action=once()), NOW, []
    for _ in range(6):
        defer(claim(reread(row), now), now=now)
        due_at = reread(row).next_retry_at
        assert due_at is not None
        waits.append((due_at - now).total_seconds())
        now = due_at
        place(row, now)
    assert waits == [5, 10, 20, 40, 60, 60]
    assert (reread(row).attempt, reread(row).retry_count) == (7, 0)


@pytest.mark.parametrize(
    ("base", "earlier", "wait"), [(5, 0, 5), (5, 3, 40), (5, 10_000, 60), (90, 0, 90), (90, 5, 90)]
)
def test_wait_is_bounded_however_often_it_was_deferred(
    base: float, earlier: int, wait: float
) -> None:
    assert deferring.wait_seconds(base, earlier=earlier) == wait


@pytest.mark.parametrize("asked", [0.5, 120, 86_000])
def test_wait_that_the_action_asks_for_counts(asked: float) -> None:
    claimed = started()
    defer(claimed, after_seconds=asked)
    assert reread(claimed).next_retry_at == LATER + seconds(asked)


def test_action_that_asks_for_no_wait_is_due_at_once(sent: list[messages.Message]) -> None:
    claimed = started()
    defer(claimed, after_seconds=0)
    assert reread(claimed).next_retry_at is None
    assert [message.task for message in sent] == [messages.SCHEDULE]


@pytest.mark.parametrize("asked", ["soon", None, -1, float("nan"), float("inf"), 10**400])
def test_wait_that_is_none_is_not_taken(asked: Any) -> None:
    claimed = started()
    ends = [Ended(claimed, Reason.TASK_REJECTED, {RETRY_AFTER: asked})]
    executions.finish(ends, now=LATER, actor="w1")
    assert reread(claimed).next_retry_at == LATER + seconds(5)


def test_wait_never_passes_the_deadline_and_the_sweep_ends_it_there() -> None:
    deadline_at = NOW + seconds(4)
    claimed = started(deadline_at=deadline_at)
    defer(claimed)
    assert reread(claimed).next_retry_at == deadline_at
    executions.sweep(now=deadline_at)
    assert ended(claimed) == ("failed", "deadline_passed")


def test_deferral_after_the_deadline_is_its_end() -> None:
    claimed = started(deadline_at=LATER)
    defer(claimed)
    assert ended(claimed) == ("failed", "deadline_passed")
    result: Any = reread(claimed).result
    assert result["error"] == Reason.DEADLINE_PASSED.text


def test_cancel_of_what_is_about_to_be_deferred_cancels_it() -> None:
    claimed = started()
    executions.cancel(execution_id=claimed.pk, actor="tester", now=NOW)
    assert defer(claimed)
    assert ended(claimed) == ("cancelled", "cancelled")


def test_deferral_of_an_attempt_that_was_given_up_changes_nothing() -> None:
    claimed = started(action=once())
    executions.sweep(now=NOW + seconds(71))
    assert defer(claimed, now=NOW + seconds(72)) == set()
    assert ended(claimed) == ("timeout", "run_deadline_passed")


def test_second_copy_of_a_deferral_changes_nothing() -> None:
    claimed = started()
    assert defer(claimed)
    assert not defer(claimed, now=LATER + seconds(1))
    assert events(claimed) == ["claim", "defer"]


def test_twenty_deferrals_leave_all_retries_for_failures() -> None:
    action = make_action(
        "core.again",
        idempotent=True,
        retry_policy={"max_attempts": 2, "retry_on": ["action_failed"], "backoff": "none"},
    )
    row, now = make_execution(S.SCHEDULED, action=action), NOW
    for _ in range(20):
        defer(claim(reread(row), now), now=now, after_seconds=0)
        now += timedelta(milliseconds=10)
        place(row, now)
    for wanted in ("requested", "failed"):
        failure = Ended(claim(reread(row), now), Reason.ACTION_FAILED, {})
        executions.finish([failure], now=now, actor="w1")
        assert reread(row).status == wanted
        if wanted == "requested":
            place(row, now)
    assert (reread(row).attempt, reread(row).retry_count) == (22, 1)


def test_deferrals_and_ends_of_one_batch_are_each_recorded() -> None:
    first, second, third = (started() for _ in range(3))
    ends = [
        Ended(first, Reason.TASK_REJECTED, {RETRY_AFTER: 7}),
        Ended(second, Reason.SUCCEEDED, {"n": 2}),
        Ended(third, Reason.TASK_REJECTED, {}),
    ]
    assert len(executions.finish(ends, now=LATER, actor="w1")) == 3
    waits = [reread(first).next_retry_at, reread(third).next_retry_at]
    assert waits == [LATER + seconds(7), LATER + seconds(5)]
    assert reread(second).status == "completed"


def test_no_policy_can_name_a_deferral() -> None:
    from orchestrator.core.retry_policy import problems

    ((name, _),) = problems({"retry_on": ["task_rejected"]})
    assert name == "retry_on"


# --- the worker pauses ---------------------------------------------------------------------------


def pauses(worker_id: int | None) -> dict[str, float]:
    """What this worker pauses, and for how many seconds from LATER on."""
    row = Worker.objects.get(pk=worker_id or 0)
    ends = fleet.paused(row.queue_pauses, now=LATER)
    return {name: (until - LATER).total_seconds() for name, until in ends.items()}


def make_queue(name: str = "orders", **values: Any) -> WorkQueue:
    return WorkQueue.objects.create(name=name, created_at=NOW, updated_at=NOW, **values)


QUEUED: dict[str, Any] = {"queue": "orders", "lane": "input"}


def test_worker_pauses_the_queue_and_both_wait_as_long_as_the_queue_says() -> None:
    make_queue(defer_seconds=2, defer_pause_seconds=90)
    claimed = started(**QUEUED)
    defer(claimed)
    assert reread(claimed).next_retry_at == LATER + seconds(2)
    assert pauses(claimed.worker_id) == {"orders": 90}


def test_queue_may_want_no_pause_at_all() -> None:
    make_queue(defer_pause_seconds=0)
    claimed = started(**QUEUED)
    defer(claimed)
    assert pauses(claimed.worker_id) == {}


def test_without_a_queue_the_worker_pauses_the_action_alone() -> None:
    claimed = started(action=once())
    defer(claimed)
    assert pauses(claimed.worker_id) == {"action:core.once": 30}


def test_queue_that_is_gone_has_the_usual_terms() -> None:
    claimed = started(**QUEUED)
    defer(claimed)
    assert reread(claimed).next_retry_at == LATER + seconds(5)
    assert pauses(claimed.worker_id) == {"orders": 30}


def test_deferral_after_the_deadline_pauses_all_the_same() -> None:
    claimed = started(deadline_at=LATER, **QUEUED)
    defer(claimed)
    assert pauses(claimed.worker_id) == {"orders": 30}


def test_row_of_the_worker_says_it_before_the_execution_goes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    claimed = started(**QUEUED)

    def refuse(*_: Any, **__: Any) -> set[Any]:
        raise DatabaseError("away")

    monkeypatch.setattr(type(Execution.objects.all()), "transition_many", refuse)
    with pytest.raises(DatabaseError):
        defer(claimed)
    assert pauses(claimed.worker_id) == {"orders": 30}
    monkeypatch.undo()
    assert defer(claimed, now=LATER), "its report is repeated, and then it goes back"
    assert reread(claimed).status == "requested"


def test_it_is_not_placed_by_a_view_of_the_fleet_from_before_the_pause() -> None:
    make_worker()
    view = fleet.Placement()
    view.refresh(now=NOW)
    claimed = started(action=once())
    defer(claimed, after_seconds=0)
    schedule(reread(claimed), now=LATER, placement=view)
    assert reread(claimed).status == "requested", "it waits for the only worker, which pauses"
    other = make_execution(action=make_action("core.other"))
    schedule(other, now=LATER, placement=view)
    assert reread(other).status == "scheduled"


def test_what_was_sent_ahead_goes_back_and_the_rest_stays() -> None:
    worker = make_worker()
    ahead = make_execution(S.SCHEDULED, worker=worker, **QUEUED)
    other = make_execution(S.SCHEDULED, worker=worker, queue="mail", lane="input")
    plain = make_execution(S.SCHEDULED, worker=worker)
    pinned = make_execution(S.SCHEDULED, worker=worker, pinned_worker=worker)
    elsewhere = make_execution(S.SCHEDULED, worker=make_worker("w2"), **QUEUED)
    names = {"orders", "action:core.other"}
    assert executions.release_paused(worker_id=worker.pk, names=names, now=LATER, actor="w1") == 1
    row = reread(ahead)
    assert (row.status, row.reason, row.retry_count) == ("requested", "queue_paused", 0)
    assert events(ahead) == ["give_back"]
    for still in (other, plain, pinned, elsewhere):
        assert reread(still).status == "scheduled"
