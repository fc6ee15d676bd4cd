"""The threads that write: what a row that another transaction holds means to them, and what not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError

from orchestrator.core import clock, executions
from orchestrator.core.executions import Ended
from orchestrator.core.models import Execution
from orchestrator.core.reasons import Reason
from orchestrator.core.states import ExecutionStatus
from tests.factories import make_execution, make_worker
from tests.locks import held
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


def test_end_of_an_attempt_that_was_given_up_is_refused_once(working: Agent) -> None:
    (execution,) = rows(1, S.RUNNING)
    Execution.objects.filter(pk=execution.pk).update(attempt=2)
    working.finisher.put(Ended(execution, Reason.SUCCEEDED, {}))
    assert working.finisher.flush(60)
    assert statuses([execution]) == ["running"]
