"""Several executors, threads and changes at once, on PostgreSQL."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from orchestrator.core import executions, fleet
from orchestrator.core.models import Execution, Worker
from orchestrator.core.reasons import Reason
from orchestrator.policies import admitting, changes, maintenance, waking
from orchestrator.policies.models import PolicyBucket, PolicySlot
from tests.core.scheduling import schedule
from tests.factories import NOW, make_execution, make_worker, seconds
from tests.policies.play import end, look, make_policy, started, tick
from tests.races import at_once
from tests.rows import reread

pytestmark = [
    pytest.mark.usefixtures("database", "sent"),
    pytest.mark.parametrize("database", ["postgresql"], indirect=True),
]

EXECUTORS = 20


@pytest.fixture(autouse=True)
def workers(database: str) -> None:
    for number in range(4):
        make_worker(f"w{number}", capacity=100)


def place(ids: list[UUID]) -> None:
    for id in ids:
        executions.schedule([id], placement=fleet.Placement(), now=NOW, actor="executor")


def failures(outcomes: list[Any]) -> list[Exception]:
    return [each for each in outcomes if isinstance(each, Exception)]


def test_twenty_schedulers_never_start_more_than_the_limit() -> None:
    make_policy(limit=3)
    ids = [make_execution().pk for _ in range(100)]
    outcomes = at_once(*(partial(place, ids[start::EXECUTORS]) for start in range(EXECUTORS)))
    assert failures(outcomes) == []
    assert len(started()) == 3
    assert PolicySlot.objects.held().count() == 3


def test_all_of_them_look_at_the_same_rows() -> None:
    make_policy(limit=3)
    for _ in range(50):
        make_execution()
    assert failures(at_once(*(look for _ in range(8)))) == []
    assert len(started()) == 3


def test_batches_with_many_keys_in_any_order_do_not_wait_for_each_other() -> None:
    make_policy("hosts", limit=2, keyed_by=["/host"])
    make_policy("users", limit=5, keyed_by=["/user"])
    rows = [
        make_execution(parameters={"host": place % 7, "user": place % 5}) for place in range(200)
    ]
    batches = []
    for start in range(8):
        ids = [row.pk for row in rows[start::8]]
        random.Random(start).shuffle(ids)
        batches.append(
            partial(
                executions.schedule, ids, placement=fleet.Placement(), now=NOW, actor="executor"
            )
        )
    assert failures(at_once(*batches)) == []
    running = started()
    for key, limit in (("host", 2), ("user", 5)):
        values = [row.parameters[key] for row in running]
        assert max(map(values.count, values)) <= limit
    assert PolicyBucket.objects.count() == 12


def test_rate_is_exact_among_executors() -> None:
    make_policy(kind="rate", limit=7, window_seconds=60)
    ids = [make_execution().pk for _ in range(60)]
    assert failures(at_once(*(partial(place, ids[start::10]) for start in range(10)))) == []
    assert len(started()) == 7


def test_quota_is_exact_among_executors() -> None:
    make_policy(kind="quota", limit=7, period="day")
    ids = [make_execution().pk for _ in range(60)]
    assert failures(at_once(*(partial(place, ids[start::10]) for start in range(10)))) == []
    assert len(started()) == 7
    assert PolicyBucket.objects.get().used == 7


@pytest.mark.slow
def test_limit_that_is_changed_under_load_is_never_exceeded() -> None:
    """It goes up and down while executors work; nothing starts beyond its largest value."""
    make_policy(limit=2)
    for _ in range(120):
        make_execution()

    def change() -> None:
        for round_number in range(30):
            changes.change("limit", {"limit": 1 + round_number % 5}, now=NOW)
        changes.change("limit", {"limit": 3}, now=NOW)

    def work() -> None:
        for _ in range(15):
            look()

    outcomes = at_once(change, work, work)
    assert failures(outcomes) == []
    assert len(started()) <= 5
    for row in started():
        end(row)
    tick()
    for _ in range(200):
        look()
        held = started()
        assert len(held) <= 3
        if not Execution.objects.open().exists():
            break
        for row in held:
            end(row)
        tick()
    assert Execution.objects.open().count() == 0, "none waits for ever"


def in_the_middle(
    monkeypatch: pytest.MonkeyPatch, *, before: bool, call: Callable[[], Any]
) -> list[Any]:
    """One executor looks; the other call comes as it is about to write what it counted, or has
    written that and not committed. It waits for the call, unless that waits for it."""
    there, gone = threading.Event(), threading.Event()
    take = admitting.Batch.take

    def take_slowly(batch: admitting.Batch, ids: Any) -> None:
        if not before:
            take(batch, ids)
        there.set()
        gone.wait(0.5)
        if before:
            take(batch, ids)

    def other() -> Any:
        there.wait(5)
        try:
            return call()
        finally:
            gone.set()

    with monkeypatch.context() as patched:
        patched.setattr(admitting.Batch, "take", take_slowly)
        return at_once(look, other)


@pytest.mark.parametrize("before", [True, False])
def test_change_of_the_key_and_executors_do_not_wait_for_each_other(
    monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    make_policy(limit=1)
    rows = [make_execution(parameters={"host": "a"}) for _ in range(4)]
    schedule(*rows)
    waking.make_due([rows[1].pk], now=NOW)

    def change() -> None:
        changes.change("limit", {"keyed_by": ["/host"]}, now=NOW)

    assert failures(in_the_middle(monkeypatch, before=before, call=change)) == []
    tick()
    look()
    assert started() == rows[:1]


def test_change_of_the_key_leaves_a_bucket_alone_that_is_made_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Somebody counts in it, and may commit that right before it would be removed."""
    make_policy(limit=1, keyed_by=["/host"])
    schedule(make_execution(parameters={"host": "a"}))
    other = make_execution(parameters={"host": "b"})
    make_due = changes._make_due

    def slowly(*args: Any, **values: Any) -> None:
        make_due(*args, **values)
        assert failures(at_once(partial(place, [other.pk]))) == []

    monkeypatch.setattr(changes, "_make_due", slowly)
    changes.change("limit", {"keyed_by": ["/host", "/user"]}, now=NOW)

    assert PolicySlot.objects.filter(execution=other.pk, bucket__keyed_by=["/host"]).exists()
    tick()
    assert PolicySlot.objects.filter(bucket__keyed_by=["/host", "/user"]).count() == 2


def test_slot_is_kept_while_what_holds_it_is_started_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_policy(limit=1)
    first, second = make_execution(), make_execution()
    schedule(first)
    executions.give_back(unstarted=[reread(first)], now=NOW, actor="w1", reason=Reason.MOVED)
    Execution.objects.filter(pk=second.pk).update(next_retry_at=NOW + seconds(60))
    assert failures(in_the_middle(monkeypatch, before=False, call=maintenance.forget)) == []
    assert PolicySlot.objects.held().count() == 1
    schedule(second, now=NOW + seconds(60))
    assert started() == [first]


def test_maintenance_and_changes_of_the_key_beside_executors() -> None:
    """Whatever the key is, no more start than the smallest number of it allows, and none stays."""
    make_policy(limit=3)
    for _ in range(40):
        make_execution(parameters={"host": "a"})

    def change() -> None:
        for round_number in range(8):
            changes.change("limit", {"keyed_by": ["/host"] * (round_number % 2)}, now=NOW)

    def maintain() -> None:
        for _ in range(8):
            tick()

    def work() -> None:
        for _ in range(8):
            look()

    assert failures(at_once(change, maintain, work, work)) == []
    assert len(started()) <= 3
    for _ in range(60):
        tick()
        look()
        held = started()
        assert len(held) <= 3
        if not Execution.objects.open().exists():
            break
        end(*held)
    assert Execution.objects.open().count() == 0, "none waits for ever"


def test_rate_holds_over_time_with_several_executors() -> None:
    """Any window has at most the rate of its length, and the limit once more."""
    limit, window = 2, 10
    make_policy(kind="rate", limit=limit, window_seconds=window)
    for _ in range(40):
        make_execution()
    for second in range(0, 61, 5):
        now = NOW + seconds(second)
        Worker.objects.update(heartbeat_at=now)
        assert failures(at_once(*[partial(look, now=now)] * 3)) == []
    times = sorted(row.scheduled_at for row in started() if row.scheduled_at)
    assert len(times) == limit * 60 // window + limit
    for at in times:
        within = sum(at <= each <= at + seconds(window) for each in times)
        assert within <= 2 * limit
