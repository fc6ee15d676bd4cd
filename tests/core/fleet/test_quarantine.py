"""What has cost two workers runs alone, one at a time, and takes no fleet with it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from orchestrator.core import executions, fleet
from orchestrator.core.models import DLQEntry, Execution, Worker
from orchestrator.core.states import ExecutionStatus
from tests.factories import NOW, make_action, make_execution, make_worker

pytestmark = pytest.mark.usefixtures("database", "sent")

S = ExecutionStatus


def suspect(status: str = S.REQUESTED, **values: Any) -> Execution:
    return make_execution(status, lost_workers=2, **values)


def backlog(now: Any = NOW) -> None:
    executions.schedule_backlog(placement=fleet.Placement(), now=now, actor="executor", limit=100)


def places() -> dict[Any, int | None]:
    """The worker of each execution that is dispatched."""
    rows = Execution.objects.filter(status__in=[S.SCHEDULED, S.RUNNING])
    return dict(rows.values_list("pk", "worker_id"))


def test_suspect_waits_until_a_worker_has_nothing_else() -> None:
    worker = make_worker(capacity=8)
    beside = make_execution(S.RUNNING, worker=worker)
    execution = suspect()
    backlog()
    assert execution.pk not in places()
    Execution.objects.filter(pk=beside.pk).update(status=S.COMPLETED, ended_at=NOW, reason="x")
    backlog(NOW + timedelta(seconds=2))
    assert places() == {execution.pk: worker.pk}


def test_worker_that_is_emptied_for_a_suspect_gets_nothing_else_and_the_others_do() -> None:
    workers = [make_worker(name, capacity=8) for name in ("w1", "w2", "w3")]
    for worker in workers:
        make_execution(S.RUNNING, worker=worker)
    suspect()
    before = set(places())
    for _ in range(30):
        make_execution()
    backlog()
    used = {worker_id for pk, worker_id in places().items() if pk not in before}
    assert len(used) == 2, "the third is being emptied"


def test_one_suspect_runs_at_a_time_and_nothing_beside_it() -> None:
    first, second = make_worker("w1", capacity=8), make_worker("w2", capacity=8)
    suspects = [suspect() for _ in range(3)]
    backlog()
    [(out, holder)] = places().items()
    assert out == suspects[0].pk, "the oldest first"
    make_execution()
    backlog()
    other = {first.pk, second.pk} - {holder}
    assert sorted(places().values(), key=str) == sorted([holder, *other], key=str)


def test_every_executor_empties_the_same_worker_for_a_suspect() -> None:
    for name in ("w1", "w2", "w3"):
        make_execution(S.RUNNING, worker=make_worker(name))
    suspect()
    chosen = set()
    for _ in range(5):
        placement = fleet.Placement()
        placement.refresh(now=NOW)
        chosen.add(tuple(pk for pk, seat in placement.seats.items() if seat.is_closed))
    assert len(chosen) == 1


def test_suspect_that_no_worker_may_have_keeps_no_other_from_its_turn() -> None:
    make_worker()
    patient = make_action("core.patient", on_no_worker="wait", runtime="wasm")
    suspect(action=patient)
    execution = suspect()
    backlog()
    assert list(places()) == [execution.pk]


def test_suspect_whose_retry_is_not_due_keeps_no_worker_empty() -> None:
    make_worker(capacity=1)
    suspect(next_retry_at=NOW + timedelta(seconds=10))
    execution = make_execution()
    backlog()
    assert list(places()) == [execution.pk]


def test_execution_that_lost_its_worker_twice_and_fails_for_good_is_kept_as_poison() -> None:
    retry = {"max_attempts": 3, "backoff": "none"}
    action = make_action("core.again", retry_policy=retry, idempotent=True)
    execution = make_execution(S.RUNNING, action=action)
    now = NOW
    for lost in (1, 2, 3):
        Worker.objects.update(status="inactive", gone_at=now)
        assert executions.settle_lost(now=now) == 1
        execution.refresh_from_db()
        assert execution.lost_workers == lost
        if lost == 3:
            break
        assert not DLQEntry.objects.exists()
        now += timedelta(seconds=1)
        worker = make_worker(f"next {lost}", now=now)
        backlog(now)
        execution.refresh_from_db()
        executions.claim(
            [execution.key],
            worker_id=worker.pk,
            incarnation=1,
            now=now,
            actor=worker.name,
        )
    assert (execution.status, execution.reason) == ("abandoned", "worker_lost")
    entry = DLQEntry.objects.get()
    assert (entry.dlq_reason, entry.subject_id, entry.attempt) == ("poison", execution.pk, 3)


def test_execution_that_lost_one_worker_is_no_poison() -> None:
    make_execution(S.RUNNING)
    Worker.objects.update(status="inactive", gone_at=NOW)
    executions.settle_lost(now=NOW)
    assert not DLQEntry.objects.exists()
