"""From the backlog to a worker: chosen, committed, dispatched, or told why not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
import structlog
from django.db import transaction

from orchestrator.core import executions, fleet, messages, publisher
from orchestrator.core.declarations import TopologyDiffers
from orchestrator.core.executions import assigning
from orchestrator.core.models import DLQEntry, Execution, ExecutionEvent, Worker
from orchestrator.core.states import ExecutionStatus
from tests.core.scheduling import schedule
from tests.factories import NOW, make_action, make_execution, make_worker
from tests.rows import reread

pytestmark = pytest.mark.usefixtures("database", "sent")

S = ExecutionStatus


def schedule_backlog(*, now: datetime = NOW, limit: int = 100) -> bool:
    return executions.schedule_backlog(
        placement=fleet.Placement(), now=now, actor="executor", limit=limit
    )


def dispatched(sent: Sequence[messages.Message]) -> list[tuple[str, int]]:
    return [
        (str(execution_id), attempt)
        for message in sent
        if message.task == messages.RUN
        for execution_id, attempt in messages.dispatched(message.kwargs)
    ]


def test_requested_execution_is_scheduled_and_dispatched(sent: list[messages.Message]) -> None:
    worker, execution = make_worker(), make_execution(queue_ttl_ms=20_000)
    assert not schedule(execution)
    row = reread(execution)
    assert (row.status, row.attempt, row.worker_id) == ("scheduled", 1, worker.pk)
    # the queue's TTL acts first, and the sweep ten seconds later
    assert row.start_by == NOW + timedelta(seconds=30)
    assert row.scheduled_at == NOW
    (message,) = sent
    assert message.kwargs == {"execution_id": str(execution.pk), "attempt": 1}
    assert message.routing_key == f"execution.dispatch.worker.{worker.pk}"
    assert message.expiration_ms == 20_000


def test_dispatches_of_a_worker_travel_together_in_the_order_of_the_backlog(
    sent: list[messages.Message],
) -> None:
    workers = {make_worker(name, capacity=50).pk for name in ("w1", "w2")}
    rows = [make_execution(priority=-n) for n in range(100)]
    assert not executions.schedule(
        [row.pk for row in rows], placement=fleet.Placement(), now=NOW, actor="executor"
    )
    lists = [(m.routing_key, messages.dispatched(m.kwargs)) for m in sent]
    assert [len(attempts) for _, attempts in lists] == [32, 18, 32, 18]
    place = {row.pk: n for n, row in enumerate(rows)}
    for worker_id in workers:
        key = f"execution.dispatch.worker.{worker_id}"
        theirs = [id for to, attempts in lists if to == key for id, _ in attempts]
        assert theirs == sorted(theirs, key=place.__getitem__)
        assert {reread(rows[place[id]]).worker_id for id in theirs} == {worker_id}


def test_dispatch_with_a_ttl_of_its_own_travels_alone(sent: list[messages.Message]) -> None:
    make_worker(capacity=10)
    rows = [make_execution(queue_ttl_ms=ttl_ms) for ttl_ms in (None, 20_000, None, 30_000)]
    executions.schedule(
        [row.pk for row in rows], placement=fleet.Placement(), now=NOW, actor="executor"
    )
    found = {
        message.expiration_ms: {id for id, _ in messages.dispatched(message.kwargs)}
        for message in sent
    }
    assert found == {
        20_000: {rows[1].pk},
        30_000: {rows[3].pk},
        None: {rows[0].pk, rows[2].pk},
    }


def test_one_action_waits_for_longer_than_all_others_where_the_ttl_of_queues_is_raised(
    sent: list[messages.Message], settings: Any
) -> None:
    settings.MUSTER = replace(settings.MUSTER, worker_queue_ttl_ms=1_800_000)
    make_worker(capacity=10)
    usual, patient = make_execution(), make_execution(scheduled_timeout_seconds=1_800)
    half = make_execution(queue_ttl_ms=1_800_000)  # the shorter of both counts
    ids = [usual.pk, patient.pk, half.pk, make_execution().pk]
    executions.schedule(ids, placement=fleet.Placement(), now=NOW, actor="executor")
    found = {id: m.expiration_ms for m in sent for id, _ in messages.dispatched(m.kwargs)}
    assert [found[id] for id in ids] == [300_000, None, 300_000, 300_000]
    assert len(sent) == 4, "with a TTL of its own, each travels alone"
    assert reread(usual).start_by == NOW + timedelta(seconds=310)
    assert reread(patient).start_by == NOW + timedelta(seconds=1_810)


@pytest.mark.parametrize("schedule_it", [schedule, lambda _: schedule_backlog()])
def test_dispatch_goes_out_after_the_commit_and_not_if_it_is_undone(
    schedule_it: Callable[[Execution], bool], sent: list[messages.Message]
) -> None:
    make_worker()
    execution = make_execution()
    with transaction.atomic():
        schedule_it(execution)
        assert reread(execution).status == "scheduled"
        assert sent == [], "dispatched before the commit"
        transaction.set_rollback(True)
    assert sent == []
    assert (reread(execution).status, reread(execution).attempt) == ("requested", 0)


def test_message_has_a_ttl_of_its_own_only_below_that_of_the_queue(
    sent: list[messages.Message],
) -> None:
    make_worker()
    schedule(make_execution(), make_execution(queue_ttl_ms=999_999_999))
    (message,) = sent
    assert message.expiration_ms is None


def test_claim_after_the_deadline_is_impossible_from_the_start() -> None:
    make_worker()
    execution = make_execution(deadline_at=NOW + timedelta(seconds=2))
    schedule(execution)
    assert reread(execution).start_by == NOW + timedelta(seconds=2)


def test_scheduling_twice_dispatches_once(sent: list[messages.Message]) -> None:
    make_worker()
    execution = make_execution()
    schedule(execution)
    schedule(execution)
    assert dispatched(sent) == [(str(execution.pk), 1)]
    assert ExecutionEvent.objects.count() == 1


def test_redelivered_request_dispatches_again_what_was_scheduled_already(
    sent: list[messages.Message],
) -> None:
    execution = make_execution(S.SCHEDULED)
    schedule(execution, redelivered=True)
    assert dispatched(sent) == [(str(execution.pk), 1)]
    assert reread(execution).attempt == 1


@pytest.mark.parametrize("status", sorted(set(S) - {S.REQUESTED, S.SCHEDULING}))
def test_request_about_anything_later_changes_nothing(
    status: str, sent: list[messages.Message]
) -> None:
    make_worker()
    execution = make_execution(status)
    schedule(execution)
    assert (reread(execution).status, sent) == (status, [])


def test_execution_is_rejected_where_no_worker_is_eligible(sent: list[messages.Message]) -> None:
    execution = make_execution()
    assert not schedule(execution)
    row = reread(execution)
    assert (row.status, row.reason, row.ended_at) == ("failed", "no_worker_available", NOW)
    assert row.result == {
        "error": "no workers available",
        "message": "no workers available: none has ever registered",
        "failed_by": "executor",
    }
    assert [message.task for message in sent] == [messages.COMPLETED]


def test_execution_that_may_wait_does_and_says_for_what() -> None:
    make_worker(runtimes=["shell"])
    execution = make_execution(action=make_action("core.patient", on_no_worker="wait"))
    schedule(execution)
    row = reread(execution)
    assert row.status == "scheduling"
    assert row.wait_reason == (
        "no workers available: none offers the runtime python (offered: shell)"
    )
    assert row.next_retry_at is not None
    assert row.next_retry_at > NOW

    assert not schedule_backlog(now=NOW + timedelta(seconds=1))
    assert reread(execution).next_retry_at == row.next_retry_at, "it was not due yet"
    schedule_backlog(now=NOW + timedelta(seconds=3))
    assert ExecutionEvent.objects.count() == 1, "waiting on is no transition"

    later = NOW + timedelta(seconds=10)
    worker = make_worker("w2", now=later)
    schedule_backlog(now=later)
    row = reread(execution)
    assert (row.status, row.worker_id, row.wait_reason) == ("scheduled", worker.pk, "")
    assert row.next_retry_at is None


def test_what_waits_in_the_backlog_survives_a_fleet_that_is_away_for_a_moment() -> None:
    worker, execution = make_worker(), make_execution()
    fleet.leave(worker_id=worker.pk, incarnation=1, reason="stopped", now=NOW)
    schedule_backlog(now=NOW + timedelta(seconds=59))
    assert reread(execution).status == "scheduling"
    schedule_backlog(now=NOW + timedelta(seconds=62))
    assert reread(execution).reason == "no_worker_available"


@pytest.mark.parametrize("meet", [schedule, lambda _: schedule_backlog(now=NOW)])
def test_what_was_accepted_without_a_worker_fails_at_once_whoever_meets_it_first(
    meet: Callable[[Execution], bool],
) -> None:
    make_worker("w1", status="inactive", gone_at=NOW - timedelta(seconds=7))
    execution = make_execution(created_at=NOW - timedelta(seconds=5))
    meet(execution)
    assert (reread(execution).status, reread(execution).reason) == ("failed", "no_worker_available")


@pytest.mark.parametrize("meet", [schedule, lambda _: schedule_backlog(now=NOW)])
def test_what_was_accepted_while_there_was_a_worker_waits_whoever_meets_it_first(
    meet: Callable[[Execution], bool],
) -> None:
    make_worker("w1", status="inactive", gone_at=NOW - timedelta(seconds=4))
    execution = make_execution(created_at=NOW - timedelta(seconds=5))
    meet(execution)
    assert reread(execution).status == "scheduling"


def test_what_was_accepted_after_the_clock_was_read_has_a_worker_that_is_there() -> None:
    worker = make_worker("w1")
    fleet.mark_unhealthy(
        worker_id=worker.pk, incarnation=1, check=fleet.BROKER_CHECK, reason="away", now=NOW
    )
    execution = make_execution(created_at=NOW + timedelta(seconds=2))
    schedule(execution)
    assert reread(execution).status == "scheduling"


def test_full_workers_leave_an_execution_in_the_backlog() -> None:
    worker = make_worker(capacity=1)
    for _ in range(2):
        make_execution(S.SCHEDULED, worker=worker)
    execution = make_execution()
    assert schedule(execution)
    assert reread(execution).status == "requested"
    assert not ExecutionEvent.objects.exists()


def test_backlog_is_served_by_priority_then_by_age(sent: list[messages.Message]) -> None:
    make_worker(capacity=1)
    rows = [make_execution(priority=priority) for priority in (0, 5, 0, 5, -5)]
    assert schedule_backlog()
    assert dispatched(sent) == [(str(rows[1].pk), 1), (str(rows[3].pk), 1)]


def test_backlog_takes_no_more_than_its_limit() -> None:
    make_worker(capacity=8)
    for _ in range(5):
        make_execution()
    assert schedule_backlog(limit=2), "more may be waiting"
    assert Execution.objects.filter(status="scheduled").count() == 2
    assert not schedule_backlog(limit=100)
    assert Execution.objects.filter(status="scheduled").count() == 5


def test_retry_is_not_scheduled_before_it_is_due() -> None:
    make_worker()
    execution = make_execution(attempt=1, retry_count=1, next_retry_at=NOW + timedelta(seconds=8))
    schedule(execution)
    schedule_backlog()
    assert reread(execution).status == "requested"
    schedule_backlog(now=NOW + timedelta(seconds=8))
    row = reread(execution)
    assert (row.status, row.attempt) == ("scheduled", 2)


def test_retry_goes_to_another_worker_where_there_is_one() -> None:
    first, second = make_worker("w1"), make_worker("w2", capacity=1)
    execution = make_execution(attempt=1, retry_count=1, worker=first)
    make_execution(S.SCHEDULED, worker=second)
    schedule(execution)
    assert reread(execution).worker_id == second.pk


def test_pinned_execution_goes_to_its_worker_even_if_that_is_down() -> None:
    make_worker("w1")
    away = make_worker("w2", status="inactive")
    execution = make_execution(pinned_worker=away)
    schedule(execution)
    assert reread(execution).worker_id == away.pk


def test_passed_deadline_is_not_scheduled() -> None:
    make_worker()
    execution = make_execution(deadline_at=NOW)
    schedule(execution)
    schedule_backlog()
    assert reread(execution).status == "requested", "the sweep ends it"


# --- the broker says no --------------------------------------------------------------------------


def test_dispatch_that_the_broker_did_not_take_is_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(messages: Any) -> Any:
        raise publisher.BrokerUnavailable

    monkeypatch.setattr(publisher, "send", refuse)
    make_worker()
    execution = make_execution()
    schedule(execution)
    row = reread(execution)
    assert (row.status, row.attempt, row.reason) == ("requested", 1, "dispatch_failed")
    assert row.next_retry_at is not None
    assert NOW < row.next_retry_at <= NOW + timedelta(seconds=2)
    assert row.retry_count == 0, "it never reached a worker, so it counts for no policy"
    events = ExecutionEvent.objects.of(execution.pk).values_list("event", flat=True)
    assert list(events) == ["schedule", "give_back"]


@pytest.fixture
def made_whole(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The first message of each batch comes back; the routing keys whose queues were declared."""
    keys: list[str] = []
    monkeypatch.setattr(publisher, "send", lambda messages: messages[:1])
    monkeypatch.setattr(publisher, "make_whole", lambda asked: keys.extend(asked))
    return keys


def test_dispatch_without_a_queue_goes_back_uncounted_and_the_queue_is_declared(
    made_whole: list[str],
) -> None:
    workers = {make_worker(name).pk for name in ("w1", "w2")}
    action = make_action("core.once", retry_policy={"max_attempts": 1})
    rows = [make_execution(action=action) for _ in range(4)]
    schedule(*rows)
    after = [reread(row) for row in rows]
    (with_queue,) = {row.worker_id for row in after if row.status == "scheduled"}
    back = [row for row in after if row.status != "scheduled"]
    assert len(back) == 2, "all that its message listed"
    for row in back:
        assert (row.status, row.reason, row.retry_count) == ("requested", "unroutable", 0)
        assert row.next_retry_at == NOW + timedelta(seconds=1)
        events = ExecutionEvent.objects.of(row.pk).values_list("event", flat=True)
        assert list(events) == ["schedule", "give_back"]
    (without,) = workers - {with_queue}
    assert made_whole == [f"execution.dispatch.worker.{without}"]
    assert not DLQEntry.objects.exists()


def test_dispatch_whose_queue_is_refused_goes_back_for_longer_and_is_logged_once(
    made_whole: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise TopologyDiffers("queue worker.1.executions: x-message-ttl: wanted 1, found 2")

    monkeypatch.setattr(publisher, "make_whole", refuse)
    make_worker()
    rows = [make_execution() for _ in range(2)]
    with structlog.testing.capture_logs() as logged:
        for execution in rows:
            schedule(execution)
    for execution in rows:
        row = reread(execution)
        assert (row.status, row.reason) == ("requested", "unroutable")
        assert row.next_retry_at == NOW + timedelta(seconds=10)
    told = [entry["differs"] for entry in logged if entry["log_level"] == "error"]
    assert len(told) <= 1, "once a minute"


def test_what_is_pinned_to_a_retired_worker_ends_and_its_queue_is_not_made_again(
    made_whole: list[str],
) -> None:
    retired = make_worker("retired", status="inactive", retired_at=NOW, gone_at=NOW)
    execution = make_execution(pinned_worker=retired)
    schedule(execution)
    row = reread(execution)
    assert (row.status, row.reason) == ("failed", "unroutable")
    assert "is retired" in str(row.result)
    assert DLQEntry.objects.get().dlq_reason == "unroutable"
    assert made_whole == []


# --- after the end -----------------------------------------------------------------------------


def test_completed_executions_free_their_places() -> None:
    worker = make_worker(capacity=1)
    rows = [make_execution(S.SCHEDULED, worker=worker) for _ in range(2)]
    placement = fleet.Placement()
    placement.refresh(now=NOW)
    with pytest.raises(fleet.FleetBusy):
        placement.pick(runtime="python", now=NOW)
    done = make_execution(S.COMPLETED, worker=worker)
    ids = [done.pk, rows[0].pk]
    assert executions.note_completed(ids, placement=placement) == 1, "one of them has ended"
    assert placement.pick(runtime="python", now=NOW) == worker.pk


def test_redelivered_request_that_was_not_scheduled_is_dispatched_once(sent: list[Any]) -> None:
    make_worker()
    execution = make_execution()
    executions.schedule(
        [execution.pk], placement=fleet.Placement(), now=NOW, actor="executor", redelivered=True
    )
    assert len([message for message in sent if message.task == messages.RUN]) == 1


def test_pinned_worker_that_lacks_the_runtime_is_no_worker_for_it() -> None:
    worker = make_worker(runtimes=["shell"])
    execution = make_execution(pinned_worker=worker)
    executions.schedule([execution.pk], placement=fleet.Placement(), now=NOW, actor="executor")
    ended = reread(execution)
    assert (ended.status, ended.reason) == ("failed", "no_worker_available")
    assert "does not offer the runtime python (offered: shell)" in str(ended.result)


# --- dispatched, and nobody claims it -----------------------------------------------------------


def seconds_later(number: float) -> datetime:
    return NOW + timedelta(seconds=number)


def dispatch_unclaimed(seconds: float) -> int:
    now = seconds_later(seconds)
    Worker.objects.update(heartbeat_at=now)
    return executions.dispatch_unclaimed(now=now, actor="executor")


def test_dispatch_that_an_idle_worker_did_not_claim_is_sent_again_less_and_less_often(
    sent: list[Any],
) -> None:
    make_worker(capacity=1)
    execution = make_execution(S.SCHEDULED, scheduled_at=NOW)
    again = [second for second in range(0, 300, 5) if dispatch_unclaimed(second)]
    assert again == [10, 20, 40, 80, 160]
    assert dispatched(sent) == [(str(execution.pk), 1)] * 5
    row = reread(execution)
    assert (row.status, row.attempt) == ("scheduled", 1), "one of the copies will be claimed"


def test_dispatch_to_a_worker_without_a_free_slot_is_not_sent_again(sent: list[Any]) -> None:
    worker = make_worker(capacity=1)
    make_execution(S.RUNNING, worker=worker)
    make_execution(S.SCHEDULED, worker=worker, scheduled_at=NOW)
    assert dispatch_unclaimed(30) == 0


@pytest.mark.parametrize("state", [{"status": "draining"}, {"status": "inactive"}])
def test_dispatch_to_a_worker_that_takes_nothing_is_not_sent_again(state: dict[str, Any]) -> None:
    make_execution(S.SCHEDULED, worker=make_worker(**state), scheduled_at=NOW)
    assert dispatch_unclaimed(30) == 0


def test_next_attempt_is_sent_again_as_soon_as_the_first_was() -> None:
    make_worker()
    make_execution(S.SCHEDULED, attempt=2, scheduled_at=NOW, dispatched_again_at=seconds_later(-1))
    assert dispatch_unclaimed(9) == 0
    assert dispatch_unclaimed(10) == 1


def test_what_finds_every_worker_full_waits_and_says_so() -> None:
    worker = make_worker(capacity=1)
    for _ in range(2):
        make_execution(S.SCHEDULED, worker=worker)
    execution = make_execution(pinned_worker=worker)
    schedule_backlog()
    row = reread(execution)
    assert row.status == "requested"
    assert "holds all that it may" in row.wait_reason


def wait_for(worker: Worker, number: int) -> None:
    for _ in range(number):
        make_execution(pinned_worker=worker)


def test_what_only_full_workers_may_have_keeps_nobody_from_the_others() -> None:
    full, free = make_worker("full", capacity=1, labels={"gpu": "yes"}), make_worker(capacity=4)
    for _ in range(2):
        make_execution(S.SCHEDULED, worker=full)
    for _ in range(60):
        make_execution(worker_selector={"gpu": "yes"})
    wait_for(full, 60)
    others = [make_execution() for _ in range(5)]
    assert schedule_backlog()
    assert {reread(each).worker_id for each in others} == {free.pk}
    assert 0 < Execution.objects.exclude(wait_reason="").count() < 60, "most are not even written"


def waiting_for_who_is_gone(gone_at: datetime, on_no_worker: str) -> list[Execution]:
    """Five executions that a worker is free for, behind many that no worker can run."""
    labels = {"gpu": "yes"}
    make_worker("gone", now=gone_at, labels=labels, status=Worker.Status.INACTIVE)
    make_worker("free", capacity=4)
    action = make_action("core.odd", on_no_worker=on_no_worker)
    for _ in range(60):
        make_execution(action=action, worker_selector=labels)
    return [make_execution() for _ in range(5)]


@pytest.mark.parametrize("on_no_worker", ["wait", "fail"])
def test_what_waits_for_a_worker_that_is_gone_keeps_nobody_from_the_others(
    on_no_worker: str,
) -> None:
    others = waiting_for_who_is_gone(NOW, on_no_worker)
    assert not schedule_backlog(), "the end of another would not help what waits"
    assert {reread(each).worker_name for each in others} == {"free"}
    assert 0 < Execution.objects.filter(status="scheduling").count() < 60, "most are not written"


def test_what_is_rejected_keeps_nobody_from_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assigning, "REJECT_SECONDS", 0.0)
    others = waiting_for_who_is_gone(NOW - timedelta(hours=1), "fail")
    schedule_backlog()
    assert {reread(each).worker_name for each in others} == {"free"}
    assert 0 < Execution.objects.filter(reason="no_worker_available").count() < 60


def test_a_look_rejects_more_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assigning, "LOOK_SECONDS", 60.0)
    monkeypatch.setattr(assigning, "REJECT_SECONDS", 60.0)
    others = waiting_for_who_is_gone(NOW - timedelta(hours=1), "fail")
    schedule_backlog()
    assert Execution.objects.filter(reason="no_worker_available").count() == 60
    assert {reread(each).worker_name for each in others} == {"free"}


def test_worker_that_is_away_gets_no_more_of_what_is_pinned_to_it_than_if_it_were_up() -> None:
    away = make_worker(capacity=3, status=Worker.Status.INACTIVE, gone_at=NOW)
    wait_for(away, 20)
    placement = fleet.Placement()
    for _ in range(3):
        executions.schedule_backlog(placement=placement, now=NOW, actor="executor", limit=100)
        placement.expire()
    assert Execution.objects.filter(status="scheduled", worker=away).count() == 6
    assert Execution.objects.filter(status="requested").count() == 14
