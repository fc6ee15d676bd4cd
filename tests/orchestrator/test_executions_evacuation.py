"""What becomes of executions whose worker is lost, replaced, drained or unfit."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from orchestrator import executions, fleet, publisher
from orchestrator.models import Execution, ExecutionEvent, Worker
from orchestrator.state_machine import ExecutionStatus
from tests.factories import NOW, make_action, make_execution, make_worker

pytestmark = pytest.mark.usefixtures("database", "sent")

S = ExecutionStatus
RETRY = {"max_attempts": 2, "backoff": "none"}
LATE = NOW + timedelta(seconds=31)


def ended(execution: Execution) -> tuple[str, str]:
    row = Execution.objects.get(pk=execution.pk)
    return row.status, row.reason


def events(execution: Execution) -> list[str]:
    return list(ExecutionEvent.objects.of(execution.pk).values_list("event", flat=True))


def schedule(execution: Execution, now: Any = LATE) -> Execution:
    executions.schedule([execution.pk], placement=fleet.Placement(), now=now, actor="executor")
    return Execution.objects.get(pk=execution.pk)


# --- what had started ----------------------------------------------------------------------------


def test_silent_worker_is_declared_lost_and_what_it_had_started_is_abandoned() -> None:
    worker = make_worker()
    running, scheduled = make_execution(S.RUNNING), make_execution(S.SCHEDULED)
    in_time = NOW + timedelta(seconds=30)
    assert (fleet.mark_stale(now=in_time), executions.settle_lost(now=in_time)) == ([], 0)
    late = NOW + timedelta(seconds=31)
    assert [each.pk for each in fleet.mark_stale(now=late)] == [worker.pk]
    assert executions.settle_lost(now=late) == 1
    assert ended(running) == ("abandoned", "worker_lost")
    assert ended(scheduled)[0] == "scheduled", "its message is still there, with its TTL"
    assert executions.settle_lost(now=late) == 0


def test_lost_attempt_of_an_idempotent_action_is_run_again() -> None:
    action = make_action("core.again", retry_policy=RETRY, idempotent=True)
    running = make_execution(S.RUNNING, action=action)
    canceling = make_execution(S.CANCELING, action=action)
    Worker.objects.update(status="inactive", gone_at=NOW)
    assert executions.settle_lost(now=NOW) == 2
    assert ended(running) == ("requested", "worker_lost")
    assert ended(canceling) == ("abandoned", "worker_lost"), "nobody wants it to run again"


def test_earlier_life_of_a_worker_is_settled_and_the_present_one_is_not() -> None:
    worker = make_worker(incarnation=2)
    earlier = make_execution(S.RUNNING, worker=worker, worker_incarnation=1)
    present = make_execution(S.RUNNING, worker=worker, worker_incarnation=2)
    assert executions.settle_lost(now=NOW) == 1
    assert ended(earlier)[0] == "abandoned"
    assert ended(present)[0] == "running"


def test_draining_worker_keeps_what_it_runs_as_long_as_it_beats() -> None:
    make_worker(status="draining")
    make_execution(S.RUNNING)
    assert executions.settle_lost(now=NOW) == 0


# --- what was never claimed ----------------------------------------------------------------------


def test_unclaimed_work_of_a_lost_worker_goes_to_another_at_once(
    sent: list[publisher.Message],
) -> None:
    lost, other = make_worker("w1"), make_worker("w2", now=LATE)
    waiting = make_execution(S.SCHEDULED, worker=lost)
    fleet.mark_stale(now=LATE)
    assert executions.release_stranded(now=LATE) == 1
    assert [message.task for message in sent] == [publisher.SCHEDULE]
    row = schedule(waiting)
    assert (row.status, row.worker_id, row.attempt) == ("scheduled", other.pk, 2)
    assert events(waiting) == ["give_back", "schedule"]
    assert row.retry_count == 0, "nothing was tried, so it counts for no policy"
    late_message = {waiting.pk: 1}
    Worker.objects.filter(pk=lost.pk).update(status="active", gone_at=None)
    claimed = executions.claim(late_message, worker_id=lost.pk, incarnation=1, now=LATE, actor="w1")
    assert claimed == [], "the old message is fenced out"


@pytest.mark.parametrize(
    "state",
    [
        {"status": "draining"},
        {"status": "inactive", "gone_at": None, "failed_checks": {"disk": "2 % free"}},
    ],
)
def test_worker_that_cannot_be_expected_to_claim_loses_what_waits_for_it(
    state: dict[str, Any],
) -> None:
    unfit = make_worker("w1", **state)
    make_worker("w2")
    waiting = make_execution(S.SCHEDULED, worker=unfit)
    running = make_execution(S.RUNNING, worker=unfit)
    assert executions.release_stranded(now=NOW) == 1
    assert executions.settle_lost(now=NOW) == 0, "it is up, and what it runs goes on"
    assert ended(waiting)[0] == "requested"
    assert ended(running)[0] == "running"


def test_cordoned_worker_keeps_what_it_was_given_before() -> None:
    make_worker("w2")
    waiting = make_execution(S.SCHEDULED, worker=make_worker("w1", cordoned=True))
    assert executions.release_stranded(now=NOW) == 0
    assert ended(waiting)[0] == "scheduled"


def test_unclaimed_work_stays_where_it_is_if_nobody_else_could_take_it() -> None:
    lost = make_worker("w1", labels={"zone": "a"})
    make_worker("w2", now=LATE, labels={"zone": "b"})
    here = make_action("core.here", worker_selector={"zone": "a"})
    waiting = make_execution(S.SCHEDULED, worker=lost, action=here)
    fleet.mark_stale(now=LATE)
    assert executions.release_stranded(now=LATE) == 0
    assert ended(waiting)[0] == "scheduled", "its worker may come back before its TTL runs out"


def test_work_that_is_pinned_to_a_lost_worker_waits_for_it() -> None:
    lost = make_worker("w1")
    make_worker("w2", now=LATE)
    waiting = make_execution(S.SCHEDULED, worker=lost, pinned_worker=lost)
    fleet.mark_stale(now=LATE)
    assert executions.release_stranded(now=LATE) == 0
    assert ended(waiting)[0] == "scheduled"


# --- a new life, and a drain ---------------------------------------------------------------------


def test_new_life_of_a_worker_settles_what_its_earlier_one_left_without_waiting() -> None:
    worker = make_worker("w1")
    running, waiting = make_execution(S.RUNNING), make_execution(S.SCHEDULED)
    soon = NOW + timedelta(seconds=1)
    fleet.register(
        worker_id=worker.pk, capacity=4, runtimes=["python"], host="h", pid=1, version="1", now=soon
    )
    fresh = make_execution(S.SCHEDULED, scheduled_at=soon)
    assert executions.settle_replaced(worker_id=worker.pk, now=soon) == 2
    assert ended(running) == ("abandoned", "worker_lost")
    assert ended(waiting) == ("requested", "given_back")
    assert ended(fresh)[0] == "scheduled", "it was dispatched to the new life"
    assert schedule(waiting, now=soon).attempt == 2


def test_drained_worker_keeps_what_it_runs_and_nothing_else() -> None:
    worker = make_worker("w1")
    running, waiting = make_execution(S.RUNNING), make_execution(S.SCHEDULED)
    executions.drain_worker(worker_id=worker.pk, actor="ada", reason="new disk", now=NOW)
    assert ended(running)[0] == "running"
    assert ended(waiting)[0] == "requested"
    assert fleet.beat(worker_id=worker.pk, incarnation=1, now=NOW) is fleet.Told.DRAIN
