"""The workers: how they come and go, and how the right one is chosen."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest

from orchestrator import fleet
from orchestrator.fleet import FleetBusy, Need, NoWorkerAvailable, Placement, Told
from orchestrator.models import Worker
from orchestrator.models.fleet import WorkerQuerySet
from orchestrator.state_machine import ExecutionStatus
from tests.factories import NOW, make_execution, make_worker

pytestmark = pytest.mark.usefixtures("database")

S = ExecutionStatus


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def register(worker: Worker, **values: Any) -> Worker:
    known: dict[str, Any] = {
        "capacity": 2,
        "runtimes": ["shell", "python"],
        "host": "node-1",
        "pid": 4711,
        "version": "1",
        "now": NOW,
    }
    return fleet.register(worker_id=worker.pk, **known | values)


def beat(worker: Worker, *, now: datetime = NOW) -> Told:
    return fleet.beat(worker_id=worker.pk, incarnation=worker.incarnation, now=now)


def placement() -> Placement:
    view = Placement()
    view.refresh(now=NOW)
    return view


# --- the life of a worker ------------------------------------------------------------------------


def test_name_is_the_identity_of_a_worker() -> None:
    first = fleet.enlist(name="w1", labels={"zone": "a"})
    assert fleet.enlist(name="w1").pk == first.pk
    assert fleet.enlist(name="w2").pk != first.pk
    fleet.enlist(name="w1", labels={"zone": "b"})
    assert Worker.objects.get(pk=first.pk).labels == {"zone": "b"}


def test_each_life_of_a_worker_is_an_incarnation_of_its_own() -> None:
    worker = fleet.enlist(name="w1")
    worker.incarnation = 1
    first, second = register(worker), register(worker, now=NOW + seconds(1))
    assert (first.incarnation, second.incarnation) == (1, 2)
    assert (second.status, second.runtimes, second.heartbeat_at) == (
        "active",
        ["python", "shell"],
        NOW + seconds(1),
    )
    assert beat(worker) is Told.LOST, "the earlier life is over"
    assert beat(second) is Told.CARRY_ON


def test_unknown_worker_cannot_register() -> None:
    with pytest.raises(fleet.UnknownWorker, match="4711"):
        register(Worker(pk=4711))


def test_late_heartbeat_does_not_bring_a_lost_worker_back() -> None:
    worker = make_worker()
    late = NOW + seconds(31)
    assert [each.name for each in fleet.mark_stale(now=late)] == ["w1"]
    assert beat(worker, now=late) is Told.LOST
    worker.refresh_from_db()
    assert (worker.status, worker.status_reason) == ("inactive", "heartbeat stale")
    assert worker.heartbeat_at == NOW
    assert fleet.mark_stale(now=late) == []


def test_worker_is_lost_after_the_window_and_not_before() -> None:
    make_worker()
    assert fleet.mark_stale(now=NOW + seconds(30)) == []
    assert len(fleet.mark_stale(now=NOW + seconds(30.001))) == 1


def test_worker_that_beats_while_it_is_declared_lost_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = make_worker()
    late = NOW + seconds(60)
    stale = WorkerQuerySet.stale

    def beats_after_the_look(queryset: WorkerQuerySet, now: datetime) -> WorkerQuerySet:
        found = stale(queryset, now)
        if list(found):
            assert beat(worker, now=late) is Told.CARRY_ON
        return found

    monkeypatch.setattr(WorkerQuerySet, "stale", beats_after_the_look)
    assert fleet.mark_stale(now=late) == []
    assert Worker.objects.get().status == "active"


def test_draining_worker_beats_on_and_gets_nothing_more() -> None:
    worker = make_worker()
    assert fleet.drain(worker_id=worker.pk, incarnation=1, reason="upgrade", now=NOW)
    assert not fleet.drain(worker_id=worker.pk, incarnation=1, reason="again", now=NOW)
    assert beat(worker, now=NOW + seconds(5)) is Told.DRAIN
    with pytest.raises(NoWorkerAvailable):
        placement().pick(runtime="python", now=NOW)


def test_earlier_life_cannot_drain_or_end_the_present_one() -> None:
    worker = make_worker(incarnation=2)
    assert not fleet.drain(worker_id=worker.pk, incarnation=1, reason="late", now=NOW)
    assert not fleet.leave(worker_id=worker.pk, incarnation=1, reason="late", now=NOW)
    worker.refresh_from_db()
    assert worker.status == "active"


def test_last_seen_is_the_newest_heartbeat_for_that_runtime() -> None:
    make_worker("w1", now=NOW, status="inactive")
    make_worker("w2", now=NOW - seconds(9), labels={"zone": "b"})
    make_worker("w3", now=NOW + seconds(9), runtimes=["shell"])
    assert fleet.last_seen_at(Need("python")) == NOW
    assert fleet.last_seen_at(Need("shell")) == NOW + seconds(9)
    assert fleet.last_seen_at(Need.of("shell", {"zone": "b"})) == NOW - seconds(9)
    assert fleet.last_seen_at(Need("wasm")) is None


# --- placement ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("age", "is_eligible"), [(29, True), (30, True), (31, False)])
def test_worker_is_eligible_while_its_heartbeat_is_fresh(age: float, is_eligible: bool) -> None:
    worker = make_worker(now=NOW - seconds(age))
    if is_eligible:
        assert placement().pick(runtime="python", now=NOW) == worker.pk
    else:
        with pytest.raises(NoWorkerAvailable, match="heartbeat too old: w1"):
            placement().pick(runtime="python", now=NOW)


def test_worker_that_fell_silent_after_the_last_look_is_not_chosen() -> None:
    make_worker()
    view = placement()
    view.pick(runtime="python", now=NOW + seconds(29))
    with pytest.raises(NoWorkerAvailable):
        view.pick(runtime="python", now=NOW + seconds(31))


@pytest.mark.parametrize("status", ["inactive", "draining"])
def test_only_active_workers_are_chosen(status: str) -> None:
    make_worker(status=status)
    with pytest.raises(NoWorkerAvailable):
        placement().pick(runtime="python", now=NOW)


def test_missing_runtime_is_named_with_those_on_offer() -> None:
    make_worker("w1", runtimes=["shell"])
    make_worker("w2", runtimes=["python", "shell"])
    with pytest.raises(NoWorkerAvailable) as missing:
        placement().pick(runtime="wasm", now=NOW)
    assert str(missing.value) == (
        "no workers available: none offers the runtime wasm (offered: python, shell)"
    )


def test_least_loaded_worker_is_chosen() -> None:
    make_worker("w1", capacity=4)
    light = make_worker("w2", capacity=4)
    for _ in range(3):
        make_execution(S.RUNNING, worker=make_worker("w1"))
    make_execution(S.SCHEDULED, worker=light)
    assert placement().pick(runtime="python", now=NOW) == light.pk


def test_load_is_measured_by_what_a_worker_may_hold() -> None:
    small, large = make_worker("small", capacity=1), make_worker("large", capacity=9)
    view = placement()
    chosen = Counter(view.pick(runtime="python", now=NOW) for _ in range(20))
    assert chosen == {small.pk: 2, large.pk: 18}
    with pytest.raises(FleetBusy):
        view.pick(runtime="python", now=NOW)
    assert view.room() == {"python": 0, "shell": 0}


def test_what_was_chosen_for_one_runtime_counts_for_the_others() -> None:
    make_worker(capacity=1)
    view = placement()
    view.pick(runtime="python", now=NOW)
    view.pick(runtime="shell", now=NOW)
    for runtime in ("python", "shell"):
        with pytest.raises(FleetBusy):
            view.pick(runtime=runtime, now=NOW)


def test_worker_that_ended_something_has_room_again() -> None:
    worker = make_worker(capacity=1)
    view = placement()
    for _ in range(2):
        view.pick(runtime="python", now=NOW)
    with pytest.raises(FleetBusy):
        view.pick(runtime="python", now=NOW)
    view.finished(worker.pk)
    assert view.pick(runtime="python", now=NOW) == worker.pk


def test_avoided_worker_is_the_last_resort() -> None:
    first, second = make_worker("w1", capacity=1), make_worker("w2", capacity=1)
    view = placement()
    chosen = [view.pick(runtime="python", now=NOW, avoid=first.pk) for _ in range(2)]
    assert chosen == [second.pk, second.pk]
    Worker.objects.filter(pk=second.pk).update(status="inactive", gone_at=NOW)
    assert placement().pick(runtime="python", now=NOW, avoid=first.pk) == first.pk


def test_pinned_worker_is_the_only_choice() -> None:
    make_worker("w1")
    pinned = make_worker("w2", capacity=1)
    view = placement()
    for _ in range(2):
        assert view.pick(runtime="python", now=NOW, pinned=pinned.pk) == pinned.pk
    with pytest.raises(FleetBusy):
        view.pick(runtime="python", now=NOW, pinned=pinned.pk)


def test_fleet_is_read_again_after_a_second_or_when_told(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("orchestrator.fleet.placement.time.monotonic", lambda: now[0])
    view = placement()
    worker = make_worker()
    view.refresh(now=NOW)
    assert view.seats == {}, "it was read a moment ago"
    now[0] += 1
    view.refresh(now=NOW)
    assert list(view.seats) == [worker.pk]
    make_worker("w2")
    view.expire()
    view.refresh(now=NOW)
    assert len(view.seats) == 2
