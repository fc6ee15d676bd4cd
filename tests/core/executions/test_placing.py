"""Acceptance of a single execution that places it too, where nothing has to wait."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from orchestrator.core import executions, fleet, messages, relay
from orchestrator.core.executions import IdempotencyConflict, NewExecution, placing
from orchestrator.core.executions.dispatching import FULL
from orchestrator.core.models import Action, Execution, ExecutionEvent, Worker
from orchestrator.core.states import ExecutionStatus
from tests.core.scheduling import schedule
from tests.factories import NOW, make_action, make_execution, make_worker
from tests.races import at_once

is_idle = placing.is_idle
on_postgresql = pytest.mark.parametrize("database", ["postgresql"], indirect=True)

pytestmark = [on_postgresql, pytest.mark.usefixtures("database", "sent", "idle")]

S = ExecutionStatus


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch, placed_by_the_executor: None) -> None:
    monkeypatch.setattr(placing, "is_idle", lambda: True)


@pytest.fixture(autouse=True)
def echo(database: str) -> Action:
    return make_action("core.echo")


def request(**values: Any) -> Execution:
    new = NewExecution(**{"action_ref": "core.echo"} | values)
    return executions.request(new, requested_by="tester", now=NOW)


def history(execution: Execution) -> list[dict[str, Any]]:
    return [dict(event) for event in ExecutionEvent.objects.of(execution.pk).values()]


def facts(execution: Execution) -> dict[str, Any]:
    """All that is stored of an execution, without what differs from one to another."""
    row = Execution.objects.filter(pk=execution.pk).values().get()
    return {name: value for name, value in row.items() if name not in ("id", "idempotency_key")}


def test_it_is_as_if_the_executor_had_placed_it(
    sent: list[messages.Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_worker(capacity=4)
    asked = {
        "parameters": {"text": "%s ' \u00e9"},
        "priority": 3,
        "queue_ttl_ms": 20_000,
        "worker_selector": {},
        "retry": {"max_attempts": 2},
        "correlation_id": "c",
    }
    placed = request(**asked)
    monkeypatch.setattr(placing, "is_idle", lambda: False)
    other = request(**asked)
    hint = sent.pop()
    assert hint.task == messages.SCHEDULE
    assert not schedule(other)

    assert facts(placed) == facts(other)
    assert {name: getattr(placed, name) for name in facts(placed)} == facts(placed)
    (mine,), (theirs,) = history(placed), history(other)
    assert mine.pop("actor") == "acceptance"
    assert theirs.pop("actor") == "executor"
    for each in (mine, theirs):
        del each["id"], each["execution_id"]
    assert mine == theirs
    dispatches = [(each.task, each.routing_key, each.expiration_ms) for each in sent]
    assert dispatches == [dispatches[0]] * 2
    assert dispatches[0][0] == messages.RUN
    assert [messages.dispatched(each.kwargs) for each in sent] == [
        [(placed.pk, 1)],
        [(other.pk, 1)],
    ]


def test_nothing_is_sent_for_what_is_undone(sent: list[messages.Message]) -> None:
    make_worker()
    with transaction.atomic():
        assert request().status == S.SCHEDULED
        transaction.set_rollback(True)
    assert not sent
    assert not Execution.objects.exists()


def test_each_slot_is_given_once_and_the_rest_is_left_to_the_executor(
    sent: list[messages.Message],
) -> None:
    large, small = make_worker("large", capacity=4), make_worker("small", capacity=2)
    rows = [request() for _ in range(8)]
    assert [row.status for row in rows] == [S.SCHEDULED] * 6 + [S.REQUESTED] * 2
    given = [row.worker_id for row in rows]
    assert (given.count(large.pk), given.count(small.pk)) == (4, 2)
    assert set(given[:3]) == {large.pk, small.pk}, "the least loaded for its size comes first"
    assert [message.task for message in sent[6:]] == [messages.SCHEDULE] * 2
    assert [(row.attempt, row.start_by, row.scheduled_at) for row in rows[6:]] == [
        (0, None, None)
    ] * 2
    assert [history(row) for row in rows[6:]] == [[], []]


WAITS: Mapping[str, dict[str, Any]] = {
    "requested": {},
    "requested of a lower priority": {"priority": -100},
    "a retry that is due": {"next_retry_at": NOW},
    "for room": {"next_retry_at": NOW + timedelta(seconds=1), "wait_reason": FULL},
    "for a worker": {"status": S.SCHEDULING, "next_retry_at": NOW, "wait_reason": "none"},
    "a suspect": {"status": S.RUNNING, "lost_workers": 2},
}


@pytest.mark.parametrize("waiting", WAITS.values(), ids=WAITS)
def test_nothing_overtakes_what_waits(waiting: dict[str, Any]) -> None:
    make_worker(capacity=4)
    make_execution(**waiting)
    assert request(priority=100).status == S.REQUESTED


LATER = NOW + timedelta(seconds=1)
DOES_NOT_WAIT: Mapping[str, dict[str, Any]] = {
    "ended": {"status": S.COMPLETED, "lost_workers": 2},
    "a retry that is not due": {"next_retry_at": LATER},
    "for a worker, not due": {
        "status": S.SCHEDULING,
        "next_retry_at": LATER,
        "wait_reason": "none",
    },
    "dispatched": {"status": S.SCHEDULED},
}


@pytest.mark.parametrize("other", DOES_NOT_WAIT.values(), ids=DOES_NOT_WAIT)
def test_what_does_not_wait_holds_nobody_up(other: dict[str, Any]) -> None:
    make_worker(capacity=4)
    make_execution(**other)
    assert request().status == S.SCHEDULED


def test_busy_installation_leaves_it_to_the_executor() -> None:
    make_worker(capacity=10_000)
    for _ in range(placing.MOST_OPEN - 1):
        make_execution(S.RUNNING)
    assert request().status == S.SCHEDULED
    assert request().status == S.REQUESTED


def test_what_is_pinned_is_left_to_the_executor() -> None:
    assert request(worker_id=make_worker().pk).status == S.REQUESTED


UNFIT: Mapping[str, dict[str, Any]] = {
    "cordoned": {"cordoned": True},
    "draining": {"status": "draining"},
    "inactive": {"status": "inactive"},
    "silent": {"heartbeat_at": NOW - timedelta(seconds=120)},
    "of the future": {"heartbeat_at": NOW + timedelta(seconds=120)},
    "full": {"capacity": 0},
}


@pytest.mark.parametrize("state", UNFIT.values(), ids=UNFIT)
def test_worker_that_is_not_fit_gets_nothing(state: dict[str, Any]) -> None:
    make_worker(**state)
    assert request().status == S.REQUESTED


@pytest.mark.parametrize(
    ("seconds", "name", "status"),
    [
        (30, "action:core.echo", "requested"),
        (0, "action:core.echo", "scheduled"),
        (30, "action:core.other", "scheduled"),
        (30, "orders", "scheduled"),
    ],
)
def test_worker_that_pauses_the_action_gets_nothing_of_it_while_it_does(
    seconds: float, name: str, status: str
) -> None:
    until = NOW + timedelta(seconds=seconds)
    make_worker(queue_pauses={name: until.isoformat()})
    assert request().status == status


def test_it_chooses_among_the_same_workers_as_the_executor() -> None:
    """Every need against every offer, by the statement and by `fleet.Need`."""
    offers = [
        make_worker(
            f"w{number}",
            capacity=0,
            runtimes=list(runtimes),
            labels=labels,
            isolation=isolation,
            missing_code=missing,
        )
        for number, (runtimes, labels, isolation, missing) in enumerate(
            itertools.product(
                (["python"], ["shell", "python"], ["shell"]),
                ({}, {"gpu": "yes"}, {"gpu": "no", "reserved": "a"}, {"reserved": "b"}),
                ("process", "user"),
                ({}, {"core": "gone"}, {"core.python_user": "gone"}, {"other": "gone"}),
            )
        )
    ]
    needs = itertools.product(
        ("python", "shell"),
        ({}, {"gpu": "yes"}, {"gpu": "no"}, {"reserved": "b"}, {"gpu": "no", "reserved": "a"}),
        ("process", "user"),
    )
    chance = random.Random(1)
    verdicts = set()
    for runtime, selector, isolation in needs:
        ref = f"core.{runtime}_{isolation}"
        make_action(ref, runtime=runtime, isolation=isolation)
        for offer in chance.sample(offers, 12):
            Worker.objects.filter(pk=offer.pk).update(capacity=1)
            row = request(action_ref=ref, worker_selector=selector)
            need = fleet.Need.of_execution(row)
            verdict = need.may_go_to(offer, offer.missing_code)
            assert (row.worker_id == offer.pk) == verdict, (need, offer)
            verdicts.add(verdict)
            Execution.objects.open().update(status=S.COMPLETED, ended_at=NOW, reason="completed")
            Worker.objects.filter(pk=offer.pk).update(capacity=0)
    assert verdicts == {True, False}


def test_taken_key_is_looked_up_and_writes_nothing(sent: list[messages.Message]) -> None:
    make_worker(capacity=4)
    first = request(idempotency_key="k")
    assert first.status == S.SCHEDULED
    again = request(idempotency_key="k")
    assert (again.pk, again.status) == (first.pk, S.SCHEDULED)
    assert len(sent) == Execution.objects.count() == ExecutionEvent.objects.count() == 1
    with pytest.raises(IdempotencyConflict):
        request(idempotency_key="k", parameters={"other": 1})


def test_key_that_several_use_at_once_is_one_execution(sent: list[messages.Message]) -> None:
    make_worker(capacity=8)
    ids = {row.pk for row in at_once(*[lambda: request(idempotency_key="k")] * 8)}
    assert len(ids) == Execution.objects.count() == ExecutionEvent.objects.count() == len(sent) == 1


def test_dispatch_that_was_never_sent_is_sent_after_two_seconds(
    sent: list[messages.Message],
) -> None:
    """Its process died between the commit and the broker."""
    make_worker(capacity=4)
    row = request()
    sent.clear()

    def after(seconds: float) -> int:
        now = NOW + timedelta(seconds=seconds)
        Worker.objects.update(heartbeat_at=now)
        return executions.dispatch_unclaimed(now=now, actor="executor")

    assert after(1.9) == 0
    assert [second for second in range(2, 40) if after(second)] == [2, 4, 8, 16, 32]
    assert {messages.dispatched(each.kwargs)[0] for each in sent} == {(row.pk, 1)}


# --- whether it is worth trying -----------------------------------------------------------------


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that the clock shows, as the one element."""
    shown = [100.0]
    monkeypatch.setattr(placing, "monotonic", lambda: shown[0])
    monkeypatch.setattr(placing, "_pace", placing._Pace())
    return shown


@pytest.mark.parametrize(("per_second", "idle_at_the_end"), [(1, True), (40, True), (80, False)])
def test_process_that_accepts_many_leaves_them_to_the_executor(
    ticks: list[float], per_second: int, idle_at_the_end: bool
) -> None:
    answers = []
    for _ in range(10 * per_second):
        ticks[0] += 1 / per_second
        answers.append(is_idle())
    assert answers[-1] is idle_at_the_end
    ticks[0] += 3
    assert is_idle(), "what was long ago does not count"


def test_process_that_cannot_send_leaves_them_to_the_executor(
    monkeypatch: pytest.MonkeyPatch, ticks: list[float]
) -> None:
    assert is_idle()
    monkeypatch.setattr(relay, "is_sending", lambda: False)
    assert not is_idle()
