"""Each number over time is what a SELECT over the history gives, whoever dies, whatever commits
when."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection, connections, transaction
from django.db.models import Count, F
from django.db.models.functions import TruncMinute
from django.test.utils import CaptureQueriesContext

from orchestrator.core.models import ExecutionEvent
from orchestrator.rollups import adding, minutes, series
from orchestrator.rollups.models import SPANS, Arrivals, Durations, Failure, FailureGroup, Mark
from orchestrator.rollups.spans import start_of
from tests.factories import NOW, make_action, make_execution, make_worker, seconds
from tests.principals import ROOT
from tests.rollups.conftest import note_end, roll_up

pytestmark = pytest.mark.usefixtures("database")


def selected() -> dict[tuple[Any, ...], int]:
    """The numbers by minute, from the history."""
    rows = ExecutionEvent.objects.order_by().values_list(
        TruncMinute("at"), F("execution__action_ref"), "to_status", "reason"
    )
    return {tuple(key): n for *key, n in rows.annotate(n=Count("pk"))}


def summed(span: int = 1) -> dict[tuple[Any, ...], int]:
    rows = Arrivals.objects.filter(minutes=span)
    return {
        tuple(key): n
        for *key, n in rows.values_list("start", "action_ref", "to_status", "reason", "count")
    }


def some_work(n: int = 40) -> None:
    worker, actions = make_worker(), [make_action("core.a"), make_action("core.b")]
    for number in range(n):
        status = ("completed", "failed", "timeout")[number % 3]
        note_end(
            make_execution(
                status,
                action=actions[number % 2],
                worker=worker,
                now=NOW + seconds(7 * number),
                result={"message": f"number {number}"},
            )
        )


def test_each_number_is_what_a_select_gives() -> None:
    some_work()
    roll_up()
    assert summed() == selected()
    for span in SPANS:
        assert sum(summed(span).values()) == ExecutionEvent.objects.count()
        assert all(start_of(start, span) == start for start, *_ in summed(span))


def test_reading_again_adds_nothing() -> None:
    some_work(6)
    roll_up()
    before = summed()
    roll_up()
    assert summed() == before


def test_a_minute_that_is_read_in_parts_ends_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minutes, "AT_ONCE", 7)
    some_work(30)
    roll_up()
    some_work(30)
    roll_up()
    assert summed() == selected()


def test_waits_are_from_the_acceptance_to_the_first_claim_and_runs_from_the_claim() -> None:
    worker = make_worker()
    execution = make_execution(
        "completed", worker=worker, created_at=NOW - seconds(20), now=NOW + seconds(40)
    )
    events = [
        ("claim", "running", 1, 0), ("retry", "requested", 1, 10), ("claim", "running", 2, 30),
        ("complete", "completed", 2, 40),
    ]  # fmt: skip
    for event, status, attempt, at in events:
        execution.history.create(
            event=event, from_status="x", to_status=status, attempt=attempt, actor="w1",
            at=NOW + seconds(at),
        )  # fmt: skip
    roll_up()
    by_minute = Durations.objects.filter(minutes=1).values_list("to_status", "bucket", "seconds")
    bucket_of = minutes.BOUNDS.index
    assert sorted(by_minute) == [
        ("completed", bucket_of(10), 10.0),
        ("running", bucket_of(30), 20.0),
    ]


def test_what_fails_in_the_middle_leaves_neither_sums_nor_mark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    some_work(6)
    add, calls = adding.add, []

    def failing(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == 2:
            raise DatabaseError("gone")
        add(*arguments)

    monkeypatch.setattr(adding, "add", failing)
    with pytest.raises(DatabaseError, match="gone"):
        minutes.roll_up(now=NOW)
    assert not Arrivals.objects.exists()
    monkeypatch.setattr(adding, "add", add)
    roll_up()
    assert summed() == selected()


def test_a_minute_is_final_some_time_after_it_is_read() -> None:
    now = NOW + timedelta(minutes=9)
    some_work(3)
    roll_up(now=now)
    bins = series.numbers(series.RECENT, now=now, seen_by=ROOT).bins
    assert [each.start for each in bins if not each.is_final] == [
        now - timedelta(minutes=1),
        now,
    ]


def test_no_minute_is_final_while_nothing_is_read() -> None:
    Mark.objects.all().delete()
    assert not any(
        each.is_final for each in series.numbers(series.RECENT, now=NOW, seen_by=ROOT).bins
    )


def test_numbers_take_one_query() -> None:
    some_work(3)
    roll_up()
    with CaptureQueriesContext(connection) as queries:
        found = series.numbers(series.RECENT, now=NOW, seen_by=ROOT)
    assert len(queries) == 1
    assert sum(sum(each.ended.values()) for each in found.bins) == 3


def test_a_mark_that_is_gone_is_made_at_the_present_end() -> None:
    some_work(3)
    Mark.objects.all().delete()
    minutes.roll_up(now=NOW)
    assert not Arrivals.objects.exists()
    some_work(1)
    roll_up()
    assert sum(summed().values()) == 2


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_what_commits_late_is_not_missed() -> None:
    early, late = make_execution("failed"), make_execution("failed")
    other = connections.create_connection("default")
    try:
        with other.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute(
                "INSERT INTO orchestrator_executionevent "
                "(execution_id, event, from_status, to_status, attempt, actor, reason, at) "
                "VALUES (%s, 'fail', 'running', 'failed', 1, 'w1', 'worker_lost', %s)",
                [early.pk, NOW],
            )
            note_end(late)  # with later ids
            minutes.roll_up(now=NOW)
            minutes.roll_up(now=NOW)
            assert not Arrivals.objects.exists()
            cursor.execute("COMMIT")
    finally:
        other.close()
    roll_up()
    assert summed() == selected()
    assert set(Failure.objects.values_list("execution_id", flat=True)) == {early.pk, late.pk}


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_an_executor_that_is_killed_in_the_middle_counts_nothing_twice() -> None:
    some_work(30)
    child = os.fork()
    if not child:  # pragma: no cover - ends by a signal
        for connection in connections.all(initialized_only=True):
            connection.inc_thread_sharing()
            connection.connection = None  # the parent's
        with transaction.atomic():
            minutes.take(0, ExecutionEvent.objects.latest("pk").pk)
            os.kill(os.getpid(), signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert not Arrivals.objects.exists()
    roll_up()
    assert summed() == selected()
    assert sum(FailureGroup.objects.values_list("count", flat=True)) == Failure.objects.count()
