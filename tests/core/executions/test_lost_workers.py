"""What becomes of executions whose worker is lost, replaced, drained or unfit."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from orchestrator.core import executions, fleet
from orchestrator.core.models import DLQEntry, Worker
from orchestrator.core.states import ExecutionStatus
from tests.factories import NOW, make_action, make_execution, make_worker
from tests.rows import ended, reread

pytestmark = pytest.mark.usefixtures("database", "sent")

S = ExecutionStatus
RETRY = {"max_attempts": 2, "backoff": "none"}


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


def test_investigations_of_any_number_of_suspects_cost_the_same_statements() -> None:
    action = make_action("core.poison")
    numbers = []
    for number, suspects in enumerate((1, 1, 6)):  # the first one reads the action, too
        worker = make_worker(f"w{number}")
        several = [
            make_execution(
                S.RUNNING, action=action, worker=worker, lost_workers=1,
                parameters={"of": suspects}, correlation_id=f"c{suspects}",
            )
            for _ in range(suspects)
        ]  # fmt: skip
        Worker.objects.filter(pk=worker.pk).update(status="inactive", gone_at=NOW)
        with CaptureQueriesContext(connection) as queries:
            assert executions.settle_lost(now=NOW) == suspects
        numbers.append(len(queries))
        entries = DLQEntry.objects.filter(subject_id__in=[each.pk for each in several])
        assert [
            (each.snapshot["parameters"], each.snapshot["correlation_id"], each.snapshot["worker"])
            for each in entries
        ] == [({"of": suspects}, f"c{suspects}", worker.name)] * suspects
    assert numbers[1] >= numbers[2]  # one row of a history is an INSERT, several are a COPY


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
    executions.schedule([waiting.pk], placement=fleet.Placement(), now=soon, actor="executor")
    assert reread(waiting).attempt == 2


def test_drained_worker_keeps_what_it_runs_and_nothing_else() -> None:
    worker = make_worker("w1")
    running, waiting = make_execution(S.RUNNING), make_execution(S.SCHEDULED)
    executions.drain_worker(worker_id=worker.pk, actor="ada", reason="new disk", now=NOW)
    assert ended(running)[0] == "running"
    assert ended(waiting)[0] == "requested"
    assert fleet.beat(worker_id=worker.pk, incarnation=1, now=NOW) is fleet.HeartbeatAnswer.DRAIN
