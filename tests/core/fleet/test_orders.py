"""What an operator decides of a worker, and that nothing undoes it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from amqp.exceptions import PreconditionFailed

from orchestrator.core import brokers, fleet
from orchestrator.core.models import Worker, WorkerEvent
from orchestrator.core.states import ExecutionStatus
from tests.factories import NOW, make_execution, make_worker
from tests.rows import history, reread

pytestmark = pytest.mark.usefixtures("database")

BY_ADA: dict[str, Any] = {"actor": "ada", "now": NOW}


class Channel:
    """Notes which queues are deleted, and refuses as RabbitMQ does where `full` says so."""

    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.full = ""

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_: object) -> None: ...

    def channel(self) -> Channel:
        return self

    def queue_delete(self, name: str, *, if_unused: bool, if_empty: bool = False) -> None:
        assert if_unused
        if if_empty and name == self.full:
            raise PreconditionFailed("not empty")
        self.deleted.append(name)


@pytest.fixture
def deletions(monkeypatch: pytest.MonkeyPatch) -> Channel:
    """What queues were deleted of a broker that is not there."""
    channel = Channel()
    monkeypatch.setattr(brokers, "connection", lambda: channel)
    return channel


def test_cordon_keeps_who_and_why_and_an_uncordon_undoes_it() -> None:
    worker = make_worker()
    fleet.cordon(worker_id=worker.pk, reason="new disk", **BY_ADA)
    fleet.cordon(worker_id=worker.pk, reason="new disk", **BY_ADA)
    assert (reread(worker).cordoned, reread(worker).cordon_reason) == (True, "new disk")
    assert reread(worker).status == "active", "it works off what it has"
    assert not Worker.objects.eligible(NOW).exists()
    fleet.uncordon(worker_id=worker.pk, reason="", **BY_ADA)
    fleet.uncordon(worker_id=worker.pk, reason="", **BY_ADA)
    assert Worker.objects.eligible(NOW).exists()
    assert history(worker) == [("cordoned", "ada", "new disk"), ("uncordoned", "ada", "")]


def test_neither_heartbeat_nor_restart_undoes_a_cordon() -> None:
    worker = make_worker()
    fleet.cordon(worker_id=worker.pk, reason="", **BY_ADA)
    assert fleet.beat(worker_id=worker.pk, incarnation=1, now=NOW) is fleet.HeartbeatAnswer.CARRY_ON
    fleet.register(
        worker_id=worker.pk, capacity=1, runtimes=["python"], host="h", pid=1, version="1", now=NOW
    )
    assert not Worker.objects.eligible(NOW).exists()


def test_drain_is_heard_at_each_heartbeat_and_outlives_the_process_as_a_cordon() -> None:
    worker = make_worker()
    fleet.order_drain(worker_id=worker.pk, reason="upgrade", **BY_ADA)
    row = reread(worker)
    assert (row.status, row.status_reason) == ("draining", "drained by ada: upgrade")
    late = NOW + timedelta(seconds=25)
    for _ in range(2):
        assert (
            fleet.beat(worker_id=worker.pk, incarnation=1, now=late) is fleet.HeartbeatAnswer.DRAIN
        )
    fleet.leave(worker_id=worker.pk, incarnation=1, reason="stopped", now=late)
    fleet.register(
        worker_id=worker.pk, capacity=1, runtimes=["python"], host="h", pid=1, version="1", now=late
    )
    assert (reread(worker).status, reread(worker).cordoned) == ("active", True)
    assert not Worker.objects.eligible(late).exists()
    told = [(kind, actor) for kind, actor, _ in history(worker)]
    assert told[:2] == [("cordoned", "ada"), ("draining", "ada")]


def test_drain_of_a_worker_that_is_down_cordons_it() -> None:
    worker = make_worker(status="inactive")
    fleet.order_drain(worker_id=worker.pk, reason="", **BY_ADA)
    assert (reread(worker).status, reread(worker).cordoned) == ("inactive", True)


def test_retired_worker_is_not_drained() -> None:
    worker = make_worker(status="inactive", retired_at=NOW)
    with pytest.raises(fleet.WorkerIsRetired, match="w1 is retired"):
        fleet.order_drain(worker_id=worker.pk, reason="", **BY_ADA)
    assert (reread(worker).cordoned, history(worker)) == (False, [])


def test_unknown_worker_cannot_be_ordered_about(deletions: Channel) -> None:
    for order in (fleet.cordon, fleet.uncordon, fleet.order_drain, fleet.retire):
        with pytest.raises(fleet.UnknownWorker, match="4711"):
            order(worker_id=4711, reason="", **BY_ADA)


# --- retire ------------------------------------------------------------------------------------


def test_retired_worker_has_no_queues_and_comes_back_if_it_registers(deletions: Channel) -> None:
    worker = make_worker(status="inactive")
    fleet.retire(worker_id=worker.pk, reason="scaled down", **BY_ADA)
    assert deletions.deleted == [f"worker.{worker.pk}.executions", f"worker.{worker.pk}.cancel"]
    assert reread(worker).retired_at == NOW
    assert history(worker) == [("retired", "ada", "scaled down")]
    fleet.retire(worker_id=worker.pk, reason="again", **BY_ADA)
    assert len(deletions.deleted) == 2
    fleet.register(
        worker_id=worker.pk, capacity=1, runtimes=["python"], host="h", pid=1, version="1", now=NOW
    )
    assert reread(worker).retired_at is None
    assert Worker.objects.eligible(NOW).exists()


def test_worker_that_is_up_is_not_retired(deletions: Channel) -> None:
    worker = make_worker()
    with pytest.raises(fleet.WorkerIsUp, match="drain it, or stop it"):
        fleet.retire(worker_id=worker.pk, reason="", **BY_ADA)
    assert deletions.deleted == []


def test_worker_for_which_something_waits_is_not_retired(deletions: Channel) -> None:
    worker = make_worker(status="inactive")
    make_execution(ExecutionStatus.SCHEDULED, worker=worker, pinned_worker=worker)
    with pytest.raises(fleet.WorkerHoldsWork, match="holds 1 executions"):
        fleet.retire(worker_id=worker.pk, reason="", **BY_ADA)
    assert deletions.deleted == []


def test_queue_with_messages_is_not_removed(deletions: Channel) -> None:
    worker = make_worker(status="inactive")
    deletions.full = f"worker.{worker.pk}.executions"
    with pytest.raises(fleet.WorkerHoldsWork, match="expires within 300 s"):
        fleet.retire(worker_id=worker.pk, reason="", **BY_ADA)
    assert reread(worker).retired_at is None


def test_janitor_retires_what_was_gone_for_a_day_and_leaves_the_rest(deletions: Channel) -> None:
    day = timedelta(hours=24)
    make_worker("long gone", status="inactive", gone_at=NOW - day - timedelta(seconds=1))
    make_worker("not so long", status="inactive", gone_at=NOW - day + timedelta(seconds=1))
    make_worker("up", now=NOW - day * 2)
    holds = make_worker("holds", status="inactive", gone_at=NOW - day * 2)
    make_execution(ExecutionStatus.SCHEDULED, worker=holds)
    assert fleet.retire_gone(now=NOW) == ["long gone"]
    assert fleet.retire_gone(now=NOW) == []
    [event] = WorkerEvent.objects.all()
    assert (event.actor, event.reason) == ("retire_janitor", "gone for 24 h")
