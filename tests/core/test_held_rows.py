"""A row that somebody else holds keeps nobody from the other rows of a batch."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from orchestrator.core import clock, executions, fleet, maintenance, messages
from orchestrator.core.executions import attempts
from orchestrator.core.models import Execution, Tick, Worker
from orchestrator.core.models.maintenance import SET_BACK
from orchestrator.core.reasons import Reason
from orchestrator.core.state_machine import Move
from orchestrator.core.state_machine import transition as carry_out
from orchestrator.core.states import ExecutionStatus
from orchestrator.workflows.models import Step
from orchestrator.workflows.states import StepState
from tests.factories import NOW, make_execution, make_step, make_worker
from tests.locks import held
from tests.rows import reread

# SQLite has one writer at a time, and so nothing to pass over
pytestmark = [
    pytest.mark.usefixtures("database", "sent"),
    pytest.mark.parametrize("database", ["postgresql"], indirect=True),
]

S = ExecutionStatus
LATER = NOW + timedelta(seconds=7)


def test_batch_passes_over_a_held_execution_and_moves_the_others() -> None:
    executions = [make_execution(S.RUNNING) for _ in range(3)]
    moves = [Move(each.pk, S.RUNNING, each.attempt) for each in executions]

    def complete() -> set[Any]:
        return Execution.objects.transition_many(
            "complete", moves, now=LATER, actor="w1", reason=Reason.SUCCEEDED
        )

    with held(executions[0]):
        assert complete() == {each.pk for each in executions[1:]}
        assert Execution.objects.get(pk=executions[0].pk).status == S.RUNNING
    assert complete() == {executions[0].pk}


def test_claim_passes_over_a_held_execution_and_takes_the_others() -> None:
    worker = make_worker()
    executions = [make_execution(S.SCHEDULED, worker=worker) for _ in range(3)]

    def claim() -> set[Any]:
        claimed = Execution.objects.claim(
            [each.key for each in executions],
            worker_id=worker.pk,
            incarnation=worker.incarnation,
            run_grace=timedelta(seconds=10),
            now=NOW,
            actor="w1",
        )
        return {each.pk for each in claimed}

    with held(executions[0]):
        assert claim() == {each.pk for each in executions[1:]}
    assert claim() == {executions[0].pk}


def test_one_execution_that_is_asked_for_is_waited_for() -> None:
    execution = make_execution(S.REQUESTED)
    with held(execution) as lock:
        lock.release_when_waited_for()
        cancelled = carry_out(execution, "cancel", now=LATER, actor="ada", reason=Reason.CANCELLED)
    assert cancelled.status == S.CANCELLED


def test_batch_of_steps_waits_for_one_that_is_held() -> None:
    steps = [make_step(StepState.PENDING) for _ in range(2)]
    moves = [Move(each.pk, each.state, each.fence) for each in steps]
    with held(steps[0]) as lock:
        lock.release_when_waited_for()
        moved = Step.objects.transition_many("cancel", moves, now=LATER, actor="ada")
    assert moved == {each.pk for each in steps}


def test_sweep_ends_what_stands_behind_more_held_rows_than_a_batch_has(settings: Any) -> None:
    settings.MUSTER = replace(settings.MUSTER, batch_size=2)
    gone = make_worker(status="inactive")
    # the oldest come first
    others = [make_execution(S.SCHEDULED, worker=gone, start_by=NOW) for _ in range(5)]
    free = [make_execution(S.SCHEDULED, worker=gone, start_by=NOW) for _ in range(3)]
    with held(*others):
        assert executions.sweep(now=NOW)["not_started"] == 3
        open_ids = set(Execution.objects.open().values_list("pk", flat=True))
        assert open_ids == {each.pk for each in others}
        assert not open_ids & {each.pk for each in free}
    assert executions.sweep(now=NOW)["not_started"] == 5


def held_for() -> str:
    """How long the server lets a silent client keep the present transaction open."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW idle_in_transaction_session_timeout")
        return str(cursor.fetchone()[0])


def test_who_vanishes_while_it_ends_executions_does_not_hold_them_for_long() -> None:
    usually = held_for()
    make_execution(S.REQUESTED, deadline_at=NOW)
    seen: list[str] = []

    def end(batch: Any, **values: Any) -> set[Any]:
        seen.append(held_for())
        return attempts.end_attempts(batch, **values)

    attempts.end_all(
        Execution.objects.past_deadline(NOW),
        reason=Reason.DEADLINE_PASSED,
        detail="",
        failed_by="test",
        moment=clock.Running(NOW),
        end=end,
    )
    assert seen == ["4s"]
    assert held_for() == usually


def test_what_is_held_is_dispatched_again_when_it_is_free(sent: list[messages.Message]) -> None:
    """Nobody can claim it before, and each tick would send one more copy."""
    worker = make_worker(now=LATER)
    long_ago = LATER - timedelta(seconds=60)
    first, second = (
        make_execution(
            S.SCHEDULED,
            worker=worker,
            scheduled_at=long_ago,
            start_by=LATER + timedelta(seconds=60),
        )
        for _ in range(2)
    )
    with held(first):
        assert executions.dispatch_unclaimed(now=LATER, actor="executor") == 1
    again_at = Execution.objects.values_list("pk", "dispatched_again_at")
    assert dict(again_at) == {first.pk: None, second.pk: LATER}
    assert executions.dispatch_unclaimed(now=LATER, actor="executor") == 1
    assert dict(again_at.all()) == {first.pk: LATER, second.pk: LATER}
    keys = [key for message in sent for key in messages.dispatched(message.kwargs)]
    assert [id for id, _ in keys] == [second.pk, first.pk]


def test_held_worker_keeps_no_other_from_being_declared_lost() -> None:
    first, second = make_worker("w1"), make_worker("w2")
    later = NOW + timedelta(seconds=31)
    with held(first):
        assert [worker.name for worker in fleet.mark_stale(now=later)] == ["w2"]
    assert [worker.name for worker in fleet.mark_stale(now=later)] == ["w1"]
    assert second.pk in Worker.objects.filter(gone_at=later).values_list("pk", flat=True)


def test_tick_that_somebody_holds_stops_no_maintenance() -> None:
    name = "muster.check_timeouts"
    overdue = make_execution(S.SCHEDULED, worker=make_worker(status="inactive"), start_by=NOW)
    tick = Tick.objects.create(name=name, ran_at=NOW - timedelta(seconds=60))
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = 100")
    with held(tick):
        assert maintenance.run(name, now=NOW)["not_started"] == 1
    assert reread(overdue).status == S.FAILED


def test_what_is_held_when_the_clock_is_set_back_gets_its_time_however_long_it_is_held() -> None:
    """Its deadline, and the end of its pause, would come later by as much as the step."""
    early = NOW - timedelta(seconds=600)
    times: dict[str, Any] = {"created_at": NOW, "deadline_at": NOW + timedelta(seconds=60)}
    first, second = (make_execution(S.SCHEDULING, **times) for _ in range(2))

    def look(after_seconds: float) -> datetime:
        now = early + timedelta(seconds=after_seconds)
        maintenance.check_timeouts(now=now)
        return now

    maintenance.check_timeouts(now=NOW)
    with held(first):
        for after_seconds in range(0, 60, 5):
            look(after_seconds)
        assert reread(first).created_at == NOW
        assert reread(second).created_at == early
    released_at = look(60)
    assert reread(first).created_at == released_at
    assert reread(first).deadline_at == released_at + timedelta(seconds=60)
    # since all of them have theirs, it is not looked for longer
    assert Tick.objects.get(name=SET_BACK).ran_at < released_at
