"""The threads that write: what a row that another transaction holds means to them, and what not."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from django.db import (
    IntegrityError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
)

from orchestrator.core import clock, database, executions
from orchestrator.core.executions import Contents, Ended
from orchestrator.core.models import Execution, ExecutionEvent
from orchestrator.core.models.executions import ExecutionQuerySet
from orchestrator.core.reasons import Reason
from orchestrator.core.states import ExecutionStatus
from tests.factories import make_execution, make_worker
from tests.locks import held
from tests.logged import logged
from tests.rows import reread
from tests.waiting import wait_until
from workers import database_threads
from workers.agent import Agent
from workers.host import Answer

pytestmark = [
    pytest.mark.usefixtures("database", "sent"),
    # SQLite locks no rows
    pytest.mark.parametrize("database", ["postgresql"], indirect=True),
]

S = ExecutionStatus
LATE = "late result refused: the attempt was given up"


def rows(count: int, status: ExecutionStatus) -> list[Execution]:
    worker = make_worker()
    return [
        make_execution(status, worker=worker, now=clock.now(), timeout_seconds=600)
        for _ in range(count)
    ]


def statuses(some: list[Execution]) -> list[str]:
    return [reread(each).status for each in some]


def asked(execution: Execution, number: int | None = None) -> Any:
    key = (execution.pk, number or execution.attempt)
    return SimpleNamespace(key=key, execution_id=key[0], number=key[1])


def answer(agent: Agent) -> Answer:
    wait_until(lambda: agent.claimer.answers)
    return agent.claimer.answers.popleft()


def test_claim_takes_the_others_and_says_which_one_is_held(working: Agent) -> None:
    some = rows(4, S.SCHEDULED)
    stale = asked(some[1], 7)
    with held(some[0]):
        working.claimer.ask([*map(asked, some), stale])
        first = answer(working)
        assert {each.pk for each in first.granted or ()} == {each.pk for each in some[1:]}
        assert set(first.held) == {some[0].key}, "and not what is out of date"

        working.claimer.ask([asked(some[0])])
        assert set(answer(working).held) == {some[0].key}
    working.claimer.ask([asked(some[0])])
    assert [each.pk for each in answer(working).granted or ()] == [some[0].pk]


def test_claim_that_is_granted_asks_no_second_question(
    working: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def must_not(*_: Any, **__: Any) -> None:
        raise AssertionError("asked though all was granted")

    monkeypatch.setattr(executions, "still_offered", must_not)
    some = rows(3, S.SCHEDULED)
    working.claimer.ask([*map(asked, some), asked(some[0])])
    assert len(answer(working).granted or ()) == 3


def test_what_was_granted_begins_though_the_others_cannot_be_asked_for(
    working: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any, **__: Any) -> None:
        raise OperationalError("gone")

    monkeypatch.setattr(executions, "still_offered", away)
    some = rows(2, S.SCHEDULED)
    working.claimer.ask([asked(some[0]), asked(some[1], 7)])
    told = answer(working)
    assert [each.pk for each in told.granted or ()] == [some[0].pk]
    assert set(told.held) == {(some[1].pk, 7)}, "asked for again, and refused then"


@pytest.mark.parametrize("error", [OperationalError("gone"), ValueError("of any other kind")])
def test_claim_whose_answer_was_lost_is_given_back_when_it_asks_again(
    working: Agent, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Except for what another message has brought as well: that may be running here."""
    monkeypatch.setattr(database_threads, "PAUSE_SECONDS", 0.01)
    claim = executions.claim

    def lost(*arguments: Any, **keywords: Any) -> list[Execution]:
        claim(*arguments, **keywords)
        monkeypatch.setattr(executions, "claim", claim)
        raise error

    monkeypatch.setattr(executions, "claim", lost)
    committed, running, other = rows(3, S.SCHEDULED)
    batch = [asked(committed), asked(running)]
    working.desk.in_hand.take([committed.key, running.key, running.key])
    working.claimer.ask(batch)
    assert answer(working).granted is None
    assert statuses([committed, running]) == ["running", "running"]

    working.claimer.ask([*batch, asked(other)])
    assert [each.pk for each in answer(working).granted or ()] == [other.pk]
    assert statuses([committed, running, other]) == ["requested", "running", "running"]
    assert reread(committed).retry_count == 0


def test_what_is_claimed_while_the_database_has_no_keys_for_it_goes_back(
    working: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has not begun, and its key is not to blame."""
    monkeypatch.setattr(database_threads, "OPENING_SECONDS", -1.0)
    keyed, plain, other = rows(3, S.SCHEDULED)

    def away(granted: list[Execution], *, unread: str = "") -> Any:
        if keyed in granted and not unread:
            raise OperationalError("away")
        return {each.pk: Contents({}, refusal=unread if each == keyed else "") for each in granted}

    monkeypatch.setattr(executions, "opened", away)
    working.claimer.ask([asked(keyed), asked(plain)])
    first = answer(working)
    assert [each.pk for each in first.granted or ()] == [plain.pk]
    assert first.held == ()
    assert statuses([keyed]) == ["running"]

    working.claimer.ask([asked(other)])
    assert [each.pk for each in answer(working).granted or ()] == [other.pk]
    assert statuses([keyed, plain, other]) == ["requested", "running", "running"]
    assert (reread(keyed).reason, reread(keyed).retry_count) == ("given_back", 0)


def test_end_of_a_held_execution_waits_and_the_others_are_recorded_at_once(working: Agent) -> None:
    some = rows(4, S.RUNNING)
    for each in some:
        working.desk.in_hand.take([each.key])
    with held(some[0]):
        for each in some[:3]:
            working.finisher.put(Ended(each, Reason.SUCCEEDED, {}))
        wait_until(lambda: statuses(some[:3]) == ["running", "completed", "completed"])
        working.finisher.put(Ended(some[3], Reason.SUCCEEDED, {}))
        wait_until(lambda: statuses(some)[3] == "completed")
        assert some[0].key in working.desk.in_hand
        assert not working.finisher.flush(0.01), "it is not recorded yet"
    wait_until(lambda: statuses(some)[0] == "completed")
    assert working.finisher.flush(60)
    assert all(each.key not in working.desk.in_hand for each in some)


def test_end_of_a_held_execution_waits_though_no_thread_can_be_started(
    working: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_: object) -> None:
        raise RuntimeError("can't start new thread")

    (execution,) = rows(1, S.RUNNING)
    with held(execution):
        monkeypatch.setattr(threading.Timer, "start", start)
        working.finisher.put(Ended(execution, Reason.SUCCEEDED, {"n": 1}))
        assert not working.finisher.flush(0.2)
    assert working.finisher.flush(60)
    assert reread(execution).result == {"n": 1}


def refuse(
    culprit: Execution, monkeypatch: pytest.MonkeyPatch, *, also_without_result: bool = False
) -> None:
    """Have a fault of ours keep the end of this execution from being recorded."""
    finish = executions.finish

    def faulty(batch: list[Ended], **keywords: Any) -> Any:
        ends = [end for end in batch if end.execution == culprit]
        if any(also_without_result or end.reason is Reason.SUCCEEDED for end in ends):
            raise TypeError("no such number: '***'")
        return finish(batch, **keywords)

    monkeypatch.setattr(executions, "finish", faulty)


def test_end_that_cannot_be_recorded_loses_its_result_and_keeps_no_other(
    working: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = rows(3, S.RUNNING)
    refuse(some[1], monkeypatch)
    working.desk.in_hand.take([each.key for each in some])
    for each in some:
        working.finisher.put(Ended(each, Reason.SUCCEEDED, {}))
    assert working.finisher.flush(60)
    assert statuses(some) == ["completed", "failed", "completed"]
    assert reread(some[1]).result == {
        "error": database_threads.UNSTORABLE,
        "message": "no such number: '***'",
        "failed_by": "worker",
    }
    assert working.desk.in_hand.keys() == []


def test_end_that_cannot_be_recorded_at_all_is_left_to_the_sweep(
    working: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = rows(3, S.RUNNING)
    refuse(some[1], monkeypatch, also_without_result=True)
    working.desk.in_hand.take([each.key for each in some])
    for each in some:
        working.finisher.put(Ended(each, Reason.SUCCEEDED, {}))
    assert working.finisher.flush(60), "nothing waits for it"
    assert statuses(some) == ["completed", "running", "completed"]
    assert working.desk.in_hand.keys() == [some[1].key], "no audit has it run once more"


def of_postgresql(kind: type[Exception], sqlstate: str) -> Exception:
    error = kind("it says why")
    error.__cause__ = psycopg.errors.lookup(sqlstate)()
    return error


@pytest.mark.parametrize(
    "error",
    [
        of_postgresql(OperationalError, "54000"),
        of_postgresql(OperationalError, "54001"),
        of_postgresql(IntegrityError, "23514"),
        of_postgresql(InternalError, "XX000"),
    ],
    ids=lambda error: error.__cause__.sqlstate,
)
def test_end_that_the_database_refuses_loses_its_result_and_keeps_no_other(
    working: Agent, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    some = rows(5, S.RUNNING)
    finish = executions.finish

    def refusing(batch: list[Ended], **keywords: Any) -> Any:
        if any(end.reason is Reason.SUCCEEDED and end.execution == some[3] for end in batch):
            raise error
        return finish(batch, **keywords)

    monkeypatch.setattr(executions, "finish", refusing)
    for each in some:
        working.finisher.put(Ended(each, Reason.SUCCEEDED, {}))
    assert working.finisher.flush(60)
    assert statuses(some) == [*["completed"] * 3, "failed", "completed"]
    assert (reread(some[3]).result or {})["message"] == "it says why"


@pytest.mark.parametrize(
    "error",
    [
        OperationalError("away"),
        of_postgresql(ProgrammingError, "42P01"),
        of_postgresql(NotSupportedError, "0A000"),
        of_postgresql(OperationalError, database.QUERY_CANCELED),
        of_postgresql(OperationalError, database.IDLE_IN_TRANSACTION),
    ],
    ids=str,
)
def test_end_is_recorded_as_it_is_when_the_database_takes_it_again(
    working: Agent, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(database_threads, "PAUSE_SECONDS", 0.01)
    finish, errors = executions.finish, [error] * 3

    def ailing(batch: list[Ended], **keywords: Any) -> Any:
        if errors:
            raise errors.pop()
        return finish(batch, **keywords)

    monkeypatch.setattr(executions, "finish", ailing)
    (execution,) = rows(1, S.RUNNING)
    working.finisher.put(Ended(execution, Reason.SUCCEEDED, {"n": 1}))
    assert working.finisher.flush(60)
    assert statuses([execution]) == ["completed"]
    assert reread(execution).result == {"n": 1}


def test_ends_that_took_too_long_together_are_recorded_by_halves(
    w1: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    finish = executions.finish

    def slow(batch: list[Ended], **keywords: Any) -> Any:
        sizes.append(len(batch))
        if len(batch) > 2:
            raise of_postgresql(OperationalError, database.QUERY_CANCELED)
        return finish(batch, **keywords)

    monkeypatch.setattr(executions, "finish", slow)
    some = rows(4, S.RUNNING)
    ends = [Ended(each, Reason.SUCCEEDED, {"n": 1}) for each in some]
    for end in ends:
        w1.finisher.put(end)
    w1.finisher._record(ends)
    assert sizes == [4, 2, 2]
    assert statuses(some) == ["completed"] * 4


def test_end_that_takes_too_long_alone_keeps_no_other_waiting(
    w1: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: Any, **__: Any) -> Any:
        raise of_postgresql(OperationalError, database.QUERY_CANCELED)

    monkeypatch.setattr(database_threads, "HELD_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(executions, "finish", slow)
    (execution,) = rows(1, S.RUNNING)
    end = Ended(execution, Reason.SUCCEEDED, {})
    w1.finisher.put(end)
    w1.finisher._record([w1.finisher.ends.get()])
    assert w1.finisher.ends.get(timeout=5) is end, "it comes again"
    assert w1.finisher.ends.unfinished_tasks == 1


def test_large_results_go_into_several_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_threads, "BATCH_CHARACTERS", 1_000)
    results: list[Any] = [
        {},
        {"text": "x" * 400},
        {"x" * 300: {"n": 1}},
        {"list": list(range(100))},
        {"text": "x" * 5_000},
        {"n": 1},
        None,
        {"list": [["x" * 100] * 8]},
    ]
    ends = [Ended(Execution(), Reason.SUCCEEDED, result) for result in results]
    parts = list(database_threads._parts(ends))
    assert [end for part in parts for end in part] == ends
    assert [len(part) for part in parts] == [3, 1, 1, 3]


def test_result_that_is_none_of_ours_is_recorded_as_one_that_cannot_be_stored(
    working: Agent,
) -> None:
    foreign: Any = "***"
    some = rows(2, S.RUNNING)
    working.finisher.put(Ended(some[0], Reason.TASK_REJECTED, foreign))
    working.finisher.put(Ended(some[1], Reason.SUCCEEDED, {}))
    assert working.finisher.flush(60)
    assert statuses(some) == ["failed", "completed"]
    assert (reread(some[0]).result or {})["error"] == database_threads.UNSTORABLE


def test_fault_of_the_thread_that_records_ends_does_not_end_it(
    working: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = rows(2, S.RUNNING)
    record = working.finisher._record

    def faulty(batch: list[Ended]) -> None:
        monkeypatch.setattr(working.finisher, "_record", record)
        raise ValueError("of ours")

    monkeypatch.setattr(working.finisher, "_record", faulty)
    working.finisher.put(Ended(some[0], Reason.SUCCEEDED, {}))
    wait_until(lambda: working.finisher._record is record)
    working.finisher.put(Ended(some[1], Reason.SUCCEEDED, {}))
    wait_until(lambda: statuses(some) == ["running", "completed"])


def test_end_of_an_attempt_that_was_given_up_is_refused_once(
    working: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    (execution,) = rows(1, S.RUNNING)
    Execution.objects.filter(pk=execution.pk).update(attempt=2)
    working.finisher.put(Ended(execution, Reason.SUCCEEDED, {}))
    assert working.finisher.flush(60)
    assert statuses([execution]) == ["running"]
    assert [line["execution_id"] for line in logged(caplog, LATE)] == [str(execution.pk)]


@pytest.mark.parametrize("reason", [Reason.SUCCEEDED, Reason.PACK_UNAVAILABLE])
def test_end_whose_record_was_not_heard_of_is_no_late_result(
    working: Agent,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    reason: Reason,
) -> None:
    """The connection breaks after the commit: the end is recorded once more, and refused."""
    monkeypatch.setattr(database_threads, "PAUSE_SECONDS", 0.01)
    finish, broken = executions.finish, [OperationalError("the connection is closed")]

    def breaks(batch: list[Ended], **keywords: Any) -> Any:
        counted = finish(batch, **keywords)
        if broken:
            raise broken.pop()
        return counted

    monkeypatch.setattr(executions, "finish", breaks)
    one, given_up = rows(2, S.RUNNING)
    ExecutionEvent.objects.create(
        execution=given_up, event="claim", from_status="scheduled", to_status="running",
        attempt=given_up.attempt, actor=working.name, at=clock.now(),
    )  # fmt: skip
    Execution.objects.filter(pk=given_up.pk).update(attempt=2)
    for each in (one, given_up):
        working.finisher.put(Ended(each, reason, {"n": 1}))
    assert working.finisher.flush(60)
    assert not broken
    assert statuses([one]) == ["completed" if reason is Reason.SUCCEEDED else "requested"]
    assert [line["execution_id"] for line in logged(caplog, LATE)] == [str(given_up.pk)]


def test_end_before_that_of_one_that_is_cancelled_is_no_late_result(
    w1: Agent, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Two statements, as nobody knows before the first that there is one to be cancelled: the
    connection breaks between them."""
    monkeypatch.setattr(database_threads, "PAUSE_SECONDS", 0.01)
    swap, calls = ExecutionQuerySet.transition_many, []

    def breaks(rows: Any, event: str, moves: Any, **values: Any) -> Any:
        calls.append(event)
        if len(calls) == 2:
            raise OperationalError("the connection is closed")
        return swap(rows, event, moves, **values)

    some = rows(2, S.RUNNING)
    Execution.objects.filter(pk=some[1].pk).update(status=S.CANCELING)
    monkeypatch.setattr(ExecutionQuerySet, "transition_many", breaks)
    ends = [Ended(each, Reason.SUCCEEDED, {}) for each in some]
    for end in ends:
        w1.finisher.put(end)
    w1.finisher._record(ends)
    assert len(calls) == 4
    assert statuses(some) == ["completed"] * 2
    assert not logged(caplog, LATE)
