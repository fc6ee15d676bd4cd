"""The workers: how they come, beat, fail their checks, go and are found missing."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from orchestrator.core import fleet
from orchestrator.core.fleet import HeartbeatAnswer, Need
from orchestrator.core.models import Tally, Worker
from orchestrator.core.models.fleet import WorkerQuerySet
from tests.factories import NOW, make_worker, seconds
from tests.logged import logged
from tests.rows import history, reread

pytestmark = pytest.mark.usefixtures("database")


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


def beat(worker: Worker, *, now: datetime = NOW) -> HeartbeatAnswer:
    return fleet.beat(worker_id=worker.pk, incarnation=worker.incarnation, now=now)


def is_eligible(now: datetime = NOW) -> bool:
    return Worker.objects.eligible(now).exists()


def fails(worker: Worker, check: str, reason: str = "bad") -> bool:
    return fleet.mark_unhealthy(
        worker_id=worker.pk, incarnation=worker.incarnation, check=check, reason=reason, now=NOW
    )


def passes(worker: Worker, check: str) -> bool:
    return fleet.mark_healthy(
        worker_id=worker.pk, incarnation=worker.incarnation, check=check, now=NOW
    )


def admit(worker: Worker, *, incarnation: int | None = None) -> bool:
    return fleet.admit(worker_id=worker.pk, incarnation=incarnation or worker.incarnation)


# --- the life of a worker ------------------------------------------------------------------------


def test_all_that_a_process_says_of_itself_is_stored() -> None:
    said = {"capacity": 7, "runtimes": ["shell"], "isolation": "user", "host": "node-2",
            "pid": 12, "version": "9"}  # fmt: skip
    worker = reread(register(fleet.enlist(name="w1"), **said, missing_code={"acme": "not there"}))

    assert {name: getattr(worker, name) for name in said} == said
    assert worker.missing_code == {"acme": "not there"}
    assert worker.registered_at == worker.heartbeat_at == NOW


def test_worker_that_is_not_ready_is_given_no_work_until_it_is() -> None:
    worker = register(fleet.enlist(name="w1"), is_ready=False)
    assert not is_eligible()
    assert reread(worker).is_up
    assert beat(worker) is HeartbeatAnswer.CARRY_ON

    assert admit(worker)
    assert is_eligible()
    assert (reread(worker).status_reason, reread(worker).failed_checks) == ("", {})
    assert not admit(worker), "once"


def test_worker_that_becomes_ready_undoes_neither_a_drain_nor_a_check_nor_an_end() -> None:
    unfit = register(fleet.enlist(name="unfit"), is_ready=False)
    fails(unfit, "disk_free")
    passes(unfit, "disk_free")
    assert reread(unfit).status == "inactive", "not ready yet"
    fails(unfit, "disk_free")
    admit(unfit)
    assert (reread(unfit).status, reread(unfit).failed_checks) == ("inactive", {"disk_free": "bad"})

    drained = register(fleet.enlist(name="drained"), is_ready=False)
    fleet.order_drain(worker_id=drained.pk, actor="ada", reason="upgrade", now=NOW)
    admit(drained)
    assert reread(drained).status == "draining"

    gone = register(fleet.enlist(name="gone"), is_ready=False)
    fleet.leave(worker_id=gone.pk, incarnation=gone.incarnation, reason="stopped", now=NOW)
    assert not admit(gone)
    assert not is_eligible()

    again = register(fleet.enlist(name="again"), is_ready=False)
    assert not admit(again, incarnation=again.incarnation + 1), "another life"


def test_name_is_the_identity_of_a_worker() -> None:
    first = fleet.enlist(name="w1", labels={"zone": "a"})
    assert fleet.enlist(name="w1").pk == first.pk
    assert fleet.enlist(name="w2").pk != first.pk
    fleet.enlist(name="w1", labels={"zone": "b"})
    assert reread(first).labels == {"zone": "b"}


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
    assert beat(worker) is HeartbeatAnswer.LOST, "the earlier life is over"
    assert beat(second) is HeartbeatAnswer.CARRY_ON


def test_unknown_worker_cannot_register() -> None:
    with pytest.raises(fleet.UnknownWorker, match="4711"):
        register(Worker(pk=4711))


def test_late_heartbeat_does_not_bring_a_lost_worker_back() -> None:
    worker = make_worker()
    late = NOW + seconds(31)
    assert [each.name for each in fleet.mark_stale(now=late)] == ["w1"]
    assert beat(worker, now=late) is HeartbeatAnswer.LOST
    worker.refresh_from_db()
    assert (worker.status, worker.status_reason) == ("inactive", "heartbeat stale")
    assert worker.heartbeat_at == NOW
    assert fleet.mark_stale(now=late) == []


def test_worker_is_lost_after_the_window_and_not_before() -> None:
    make_worker()
    assert fleet.mark_stale(now=NOW + seconds(30)) == []
    assert len(fleet.mark_stale(now=NOW + seconds(30.001))) == 1


def test_downtime_of_a_lost_worker_is_measured_from_its_last_heartbeat() -> None:
    make_worker(heartbeat_at=NOW - seconds(42))
    make_worker("w2")
    assert fleet.mark_stale(now=NOW)
    measured = Tally.objects.filter(metric="muster_worker_downtime_seconds")
    assert dict(measured.values_list("part", "value")) == {"45": 1, "sum": 42}


def test_downtime_of_a_worker_that_crashed_and_came_back_ends_with_its_next_life() -> None:
    worker = fleet.enlist(name="w1")
    register(worker)
    register(worker, now=NOW + seconds(12))
    fleet.leave(worker_id=worker.pk, incarnation=2, reason="stopped", now=NOW + seconds(20))
    register(worker, now=NOW + seconds(90))  # it had signed off, and was not lost
    measured = Tally.objects.filter(metric="muster_worker_downtime_seconds")
    assert dict(measured.values_list("part", "value")) == {"15": 1, "sum": 12}


def test_worker_that_beats_while_it_is_declared_lost_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = make_worker()
    late = NOW + seconds(60)
    stale = WorkerQuerySet.stale

    def beats_after_the_look(queryset: WorkerQuerySet, now: datetime) -> WorkerQuerySet:
        found = stale(queryset, now)
        if list(found):
            assert beat(worker, now=late) is HeartbeatAnswer.CARRY_ON
        return found

    monkeypatch.setattr(WorkerQuerySet, "stale", beats_after_the_look)
    assert fleet.mark_stale(now=late) == []
    assert Worker.objects.get().status == "active"


def test_draining_worker_beats_on_and_gets_nothing_more() -> None:
    worker = make_worker()
    assert fleet.drain(worker_id=worker.pk, incarnation=1, reason="upgrade", now=NOW)
    assert not fleet.drain(worker_id=worker.pk, incarnation=1, reason="again", now=NOW)
    assert beat(worker, now=NOW + seconds(5)) is HeartbeatAnswer.DRAIN
    assert not is_eligible()


def test_earlier_life_cannot_drain_or_end_the_present_one() -> None:
    worker = make_worker(incarnation=2)
    assert not fleet.drain(worker_id=worker.pk, incarnation=1, reason="late", now=NOW)
    assert not fleet.leave(worker_id=worker.pk, incarnation=1, reason="late", now=NOW)
    worker.refresh_from_db()
    assert worker.status == "active"


def present_until(need: Need, now: float = 20, since: float = -1) -> Any:
    found = fleet.present_until(need, now=NOW + seconds(now), since=NOW + seconds(since))
    return None if found is None else (found - NOW).total_seconds()


def test_fleet_was_present_until_the_last_of_its_workers_went() -> None:
    make_worker("w1", status="inactive")
    make_worker("w2", status="inactive", gone_at=NOW + seconds(9), labels={"zone": "b"})
    make_worker("w3", runtimes=["shell"])
    assert present_until(Need("python")) == 9
    assert present_until(Need.of("python", {"zone": "b"})) == 9
    assert present_until(Need.of("python", {"zone": "a"})) is None
    assert present_until(Need("shell")) == 20, "it is there now"
    assert present_until(Need("shell"), now=45) == 30, "silent since its heartbeat became stale"
    assert present_until(Need("wasm")) is None


def test_workers_that_went_before_that_are_not_looked_at() -> None:
    make_worker("w1", status="inactive", gone_at=NOW + seconds(9))
    make_worker("w2")
    assert present_until(Need("python"), now=100, since=29.9) == 30, "the silent one"
    assert present_until(Need("python"), now=100, since=30) is None
    Worker.objects.filter(name="w2").delete()
    assert present_until(Need("python"), since=8.9) == 9
    assert present_until(Need("python"), since=9) is None


def test_any_number_of_workers_that_lack_code_costs_the_same_statements() -> None:
    need, numbers = Need.of("python", None, ("shop", "shop.echo")), []
    for first, last in ((0, 1), (1, 6)):
        for number in range(first, last):
            life = {"worker_id": make_worker(f"w{number}").pk, "incarnation": 1}
            late = NOW + seconds(number)
            fleet.lack_code(**life, missing={"shop": "no such file"}, now=late)
            fleet.lack_code(**life, missing={"other": "no such file"}, now=late + seconds(9))
        with CaptureQueriesContext(connection) as queries:
            assert present_until(need) == last - 1
        numbers.append(len(queries))
    assert numbers[0] == numbers[1] == 3


def test_worker_that_may_have_no_work_is_present_until_that_was_decided() -> None:
    worker = make_worker(incarnation=1)
    fleet.cordon(worker_id=worker.pk, actor="ada", reason="new disk", now=NOW + seconds(3))
    assert present_until(Need("python")) == 3
    fleet.uncordon(worker_id=worker.pk, actor="ada", reason="done", now=NOW + seconds(4))
    assert present_until(Need("python")) == 20
    fails: Any = {"worker_id": worker.pk, "incarnation": 1, "reason": "2 % free"}
    fleet.mark_unhealthy(**fails, check="disk_free", now=NOW + seconds(5))
    assert present_until(Need("python")) == 5


def test_worker_that_only_cannot_reach_its_broker_is_present() -> None:
    worker = make_worker(incarnation=1)
    fails: Any = {"worker_id": worker.pk, "incarnation": 1, "reason": "no connection"}
    fleet.mark_unhealthy(**fails, check="broker", now=NOW + seconds(5))
    assert present_until(Need("python")) == 20


def test_what_happens_to_a_worker_is_kept() -> None:
    worker = fleet.enlist(name="w1")
    register(worker)
    register(worker, now=NOW + seconds(1))
    fleet.drain(worker_id=worker.pk, incarnation=2, reason="shutting down", now=NOW)
    fleet.leave(worker_id=worker.pk, incarnation=2, reason="stopped", now=NOW)
    register(worker)
    fleet.mark_stale(now=NOW + seconds(31))
    kinds = [kind for kind, _, _ in history(worker)]
    assert kinds == ["registered", "lost", "registered", "draining", "left", "registered", "lost"]
    assert history(worker)[0] == ("registered", "w1", "node-1, pid 4711")
    assert history(worker)[1] == ("lost", "w1", "replaced by a new process")
    assert history(worker)[-1] == ("lost", "heartbeat_staleness_check", "heartbeat stale")


def test_life_that_ended_without_a_word_is_logged_whoever_finds_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    worker = fleet.enlist(name="w1")
    register(worker, pid=7)
    register(worker, pid=8, now=NOW + seconds(1))
    fleet.leave(worker_id=worker.pk, incarnation=2, reason="stopped", now=NOW + seconds(1))
    register(worker, pid=9, now=NOW + seconds(2))
    fleet.mark_stale(now=NOW + seconds(33))

    replaced, silent = logged(caplog, "worker lost")
    assert (replaced["worker"], replaced["host"], replaced["pid"]) == ("w1", "node-1", 7)
    assert (replaced["incarnation"], replaced["why"], replaced["level"]) == (
        1,
        "replaced",
        "warning",
    )
    assert replaced["heartbeat_at"] == NOW.isoformat().replace("+00:00", "Z")
    assert (silent["incarnation"], silent["pid"], silent["why"]) == (3, 9, "silent")


# --- its checks ----------------------------------------------------------------------------------


def test_worker_that_fails_a_check_is_inactive_beats_on_and_comes_back() -> None:
    worker = make_worker()
    assert fails(worker, "disk", "2 % free")
    assert not fails(worker, "disk", "1 % free"), "known, with another number"
    assert (reread(worker).status, reread(worker).status_reason) == ("inactive", "disk: 1 % free")
    assert not is_eligible()
    assert beat(worker, now=NOW + seconds(20)) is HeartbeatAnswer.CARRY_ON
    assert passes(worker, "disk")
    assert not passes(worker, "disk")
    assert (reread(worker).status, reread(worker).status_reason) == ("active", "")
    assert is_eligible(NOW + seconds(20))
    told = [(kind, reason) for kind, _, reason in history(worker)]
    assert told == [("unhealthy", "disk: 2 % free"), ("healthy", "disk passes")]


def test_worker_is_active_again_only_when_every_check_passes() -> None:
    worker = make_worker()
    fails(worker, "disk")
    fails(worker, "consumer", "its queue has no consumer")
    passes(worker, "disk")
    assert not is_eligible()
    assert reread(worker).status_reason == "consumer: its queue has no consumer"
    passes(worker, "consumer")
    assert is_eligible()


def test_check_that_passes_undoes_neither_a_drain_nor_a_cordon() -> None:
    worker = make_worker()
    fails(worker, "disk")
    fleet.drain(worker_id=worker.pk, incarnation=1, reason="upgrade", now=NOW)
    fleet.cordon(worker_id=worker.pk, actor="ada", reason="disk", now=NOW)
    passes(worker, "disk")
    assert (reread(worker).status, reread(worker).cordoned) == ("draining", True)
    fails(worker, "disk")
    assert reread(worker).status == "draining"


def test_unhealthy_worker_that_falls_silent_is_lost_like_any_other() -> None:
    worker = make_worker()
    fails(worker, "disk")
    late = NOW + seconds(31)
    assert len(fleet.mark_stale(now=late)) == 1
    assert beat(worker, now=late) is HeartbeatAnswer.LOST
    assert not passes(worker, "disk"), "it is gone"
    assert not is_eligible(late)


def test_check_of_an_earlier_life_says_nothing_of_the_present_one() -> None:
    worker = make_worker()
    register(worker)
    assert not fails(worker, "disk")
    assert is_eligible()
