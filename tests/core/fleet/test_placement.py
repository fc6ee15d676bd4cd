"""Which worker gets an execution, and what is said when none does."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

import pytest

from orchestrator.core import fleet
from orchestrator.core.fleet import FleetBusy, NoWorkerAvailable, Placement
from orchestrator.core.models import Worker
from orchestrator.core.states import ExecutionStatus
from tests.factories import NOW, make_execution, make_worker, seconds

pytestmark = pytest.mark.usefixtures("database")

S = ExecutionStatus


def placement() -> Placement:
    view = Placement()
    view.refresh(now=NOW)
    return view


def missing(runtime: str = "python", **asked: Any) -> str:
    """What a choice says that nobody could be chosen for."""
    with pytest.raises(NoWorkerAvailable) as error:
        placement().pick(runtime=runtime, now=NOW, **asked)
    told, _, what = str(error.value).partition(": ")
    assert told == "no workers available"
    return what


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
    assert missing(runtime="wasm") == "none offers the runtime wasm (offered: python, shell)"


def test_isolation_that_nobody_gives_is_named() -> None:
    make_worker()
    assert missing(isolation="user") == (
        "none with the runtime python gives the isolation user (see MUSTER_ACTION_USER)"
    )
    pinned = make_worker("w1").pk
    assert missing(isolation="user", pinned=pinned) == (
        "the one asked for gives the isolation process, not user"
    )
    able = make_worker("w2", isolation="user")
    assert placement().pick(runtime="python", isolation="user", now=NOW) == able.pk
    assert placement().pick(runtime="python", now=NOW, avoid=pinned) == able.pk


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


def test_nothing_is_sent_ahead_to_a_slot_whose_action_runs_long() -> None:
    worker = make_worker(capacity=2)
    make_execution(S.RUNNING, worker=worker, started_at=NOW - seconds(1))
    assert placement().room()["python"] == 2, "a free slot, and one ahead of it"
    make_execution(S.RUNNING, worker=worker, started_at=NOW - seconds(0.9))
    assert placement().room()["python"] == 1, "the other may be over soon"
    make_execution(S.SCHEDULED, worker=worker)
    with pytest.raises(FleetBusy):
        placement().pick(runtime="python", now=NOW)


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
    monkeypatch.setattr("orchestrator.core.fleet.placement.time.monotonic", lambda: now[0])
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


# --- labels, cordons ------------------------------------------------------------------------------


def test_worker_must_have_every_label_as_it_is_asked_for() -> None:
    make_worker("w1", labels={"zone": "a"})
    make_worker("w2", labels={"zone": "b", "gpu": "no"})
    right = make_worker("w3", labels={"zone": "b", "gpu": "yes", "disk": "ssd"}, capacity=9)
    view = placement()
    wanted = {"gpu": "yes", "zone": "b"}
    chosen = {view.pick(runtime="python", now=NOW, selector=wanted) for _ in range(18)}
    assert chosen == {right.pk}
    with pytest.raises(FleetBusy):
        view.pick(runtime="python", now=NOW, selector=wanted)
    assert view.pick(runtime="python", now=NOW) != right.pk, "what was chosen by label counts"


def test_missing_label_is_named_with_those_that_there_are() -> None:
    make_worker("w1", labels={"zone": "a"})
    make_worker("w2", labels={"zone": "c"}, runtimes=["shell"])
    assert missing(selector={"zone": "b"}) == (
        "none with the runtime python has the labels zone=b (there are: zone=a)"
    )
    assert missing(selector={"gpu": "yes"}) == (
        "none with the runtime python has the labels gpu=yes (there are: none of these keys)"
    )


def test_state_of_every_worker_that_would_do_is_named() -> None:
    make_worker("w1", cordoned=True)
    make_worker("w2", status="draining")
    make_worker("w3", now=NOW - seconds(31))
    make_worker("w4", status="inactive", gone_at=None, failed_checks={"disk": "full"})
    for number in range(5, 10):
        make_worker(f"w{number}", status="inactive")
    make_worker("drill", labels={"reserved": "drill"})
    make_worker("w0", labels={"zone": "b"}, runtimes=["shell"])
    assert missing() == (
        "cordoned: w1; draining: w2; gone: w5, w6, w7 and 2 more; heartbeat too old: w3; "
        "reserved for others: drill; unhealthy: w4"
    )


def test_cordoned_worker_gets_only_what_is_pinned_to_it() -> None:
    cordoned = make_worker("w1", cordoned=True, capacity=1)
    assert missing() == "cordoned: w1"
    view = placement()
    assert not any(view.room().values())
    for _ in range(2):
        assert view.pick(runtime="python", now=NOW, pinned=cordoned.pk) == cordoned.pk
    with pytest.raises(FleetBusy):
        view.pick(runtime="python", now=NOW, pinned=cordoned.pk)


def test_reserved_worker_gets_only_what_asks_for_it_by_label_or_id() -> None:
    reserved = make_worker("w1", labels={"reserved": "drill", "zone": "a"})
    assert missing() == "reserved for others: w1"
    assert missing(selector={"zone": "a"}) == "reserved for others: w1"
    view = placement()
    for asked in ({"selector": {"reserved": "drill"}}, {"pinned": reserved.pk}):
        assert view.pick(runtime="python", now=NOW, **asked) == reserved.pk


def test_pinned_worker_without_the_label_is_no_worker_for_it() -> None:
    worker = make_worker(labels={"zone": "a"})
    assert missing(pinned=worker.pk, selector={"zone": "b"}) == (
        "the one asked for does not have the labels zone=b (it has: zone=a)"
    )


def test_new_life_with_other_labels_is_noticed() -> None:
    worker = make_worker(labels={"zone": "a"})
    view = placement()
    fleet.enlist(name=worker.name, labels={"zone": "b"})
    fleet.register(
        worker_id=worker.pk, capacity=4, runtimes=["python"], host="h", pid=1, version="1", now=NOW
    )
    view.expire()
    view.refresh(now=NOW)
    assert view.pick(runtime="python", now=NOW, selector={"zone": "b"}) == worker.pk
    with pytest.raises(NoWorkerAvailable):
        view.pick(runtime="python", now=NOW, selector={"zone": "a"})


def test_choice_falls_back_to_the_avoided_worker_while_the_other_is_full() -> None:
    avoided, full = make_worker("w1"), make_worker("w2", capacity=1)
    for _ in range(2):
        make_execution(S.SCHEDULED, worker=full)
    assert placement().pick(runtime="python", now=NOW, avoid=avoided.pk) == avoided.pk


# --- a choice costs the same in a fleet of any size ----------------------------------------------


def test_reading_a_known_fleet_again_takes_three_statements(
    django_assert_num_queries: Any,
) -> None:
    for number in range(5):
        make_worker(f"w{number}")
    view = placement()
    view.expire()
    with django_assert_num_queries(3):
        view.refresh(now=NOW)


def test_room_is_what_the_seats_have_whatever_was_chosen_and_ended() -> None:
    workers = [make_worker(f"w{n}", capacity=n, runtimes=["python"]) for n in range(1, 5)]
    make_worker("w9", runtimes=["python", "shell"])
    view = placement()
    for number in range(12):
        view.pick(runtime="python", now=NOW)
        if number % 3 == 0:
            view.finished(workers[number % 4].pk)
    free = {pk: seat.window - seat.held for pk, seat in view.seats.items()}
    assert view.room()["python"] == sum(free.values())
    loads = {pk: seat.load_in("default") for pk, seat in view.seats.items()}
    chosen = view.pick(runtime="python", now=NOW)
    assert loads[chosen] == min(loads.values())


def test_fleet_is_read_once_for_each_attempt_that_was_given_back(
    django_assert_num_queries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker's row says since then what it takes no more of; later looks find nothing new."""
    monkeypatch.setattr("orchestrator.core.fleet.placement.MOST_HEEDED", 2)
    make_worker()
    view = placement()
    first, second, third = ((UUID(int=n), 1) for n in range(3))
    for returned, reads in [
        ({first}, 1),
        ({first}, 0),
        ({first, second}, 1),
        (set(), 0),
        ({second}, 0),
        ({(second[0], 2)}, 1),
        ({third}, 1),
        ({first}, 1),
    ]:
        with django_assert_num_queries(3 * reads):
            view.heed(returned, now=NOW)


# --- pauses --------------------------------------------------------------------------------------


def pause(worker: Worker, *names: str, for_seconds: float = 30) -> None:
    asked = dict.fromkeys(names, for_seconds)
    fleet.pause(worker_id=worker.pk, incarnation=1, seconds=asked, now=NOW)


PAUSED: dict[str, Any] = {"runtime": "python", "lane_key": "action:shop.charge", "now": NOW}


def test_worker_that_pauses_an_action_gets_none_of_it_and_all_else() -> None:
    first, second = make_worker("w1"), make_worker("w2")
    pause(first, "action:shop.charge")
    placement = Placement()
    placement.refresh(now=NOW)
    assert {placement.pick(**PAUSED) for _ in range(4)} == {second.pk}
    others = {placement.pick(runtime="python", lane_key="action:a.b", now=NOW) for _ in range(8)}
    assert others == {first.pk, second.pk}


def test_action_that_all_pause_waits_instead_of_being_rejected() -> None:
    worker = make_worker()
    pause(worker, "action:shop.charge")
    placement = Placement()
    placement.refresh(now=NOW)
    assert placement.paused_actions() == ["shop.charge"]
    with pytest.raises(FleetBusy):
        placement.pick(**PAUSED)
    with pytest.raises(FleetBusy):
        placement.pick(**PAUSED, pinned=worker.pk)
    with pytest.raises(NoWorkerAvailable):
        placement.pick(**{**PAUSED, "runtime": "node"})


def test_pause_that_is_over_is_none() -> None:
    worker = make_worker(heartbeat_at=NOW + seconds(5))
    pause(worker, "action:shop.charge", for_seconds=5)
    now = NOW + seconds(5)
    placement = Placement()
    placement.refresh(now=now)
    assert placement.paused_actions() == []
    assert placement.pick(**{**PAUSED, "now": now}) == worker.pk


@pytest.mark.parametrize("paused", ["orders", "mail"])
def test_pause_of_a_queue_closes_both_of_its_lanes_and_no_other_queue(paused: str) -> None:
    worker = make_worker(queues={"orders": None, "orders:retry": 1, "mail": None})
    pause(worker, paused)
    placement = Placement()
    placement.refresh(now=NOW)
    open_queues = {"orders", "mail"} - {paused}
    assert {name for name in ("orders", "mail") if placement.queue_room(name)} == open_queues
    for queue in ("orders", "orders:retry", "mail"):
        if queue.removesuffix(":retry") == paused:
            with pytest.raises(FleetBusy):
                placement.pick(runtime="python", queue=queue, now=NOW)
        else:
            assert placement.pick(runtime="python", queue=queue, now=NOW) == worker.pk
