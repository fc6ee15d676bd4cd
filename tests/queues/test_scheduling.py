"""Work of queues goes to those who serve it: fairly, within limits, and never fails for want of a
worker."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import transaction

from orchestrator.core import executions, fleet
from orchestrator.core.executions import attempts, unclaimed
from orchestrator.core.models import Execution, backlog
from orchestrator.core.reasons import Reason
from orchestrator.queues import changes
from tests.core.scheduling import schedule
from tests.factories import NOW, make_action, make_execution, make_worker, seconds
from tests.queues.play import make_queue, waiting
from tests.races import at_once
from tests.rows import reread

pytestmark = pytest.mark.usefixtures("database", "sent")

ENDLESS = 1_000


def look(placement: fleet.Placement | None = None, limit: int = 100, now=NOW) -> bool:
    return executions.schedule_backlog(
        placement=placement or fleet.Placement(), now=now, actor="executor", limit=limit
    )


def scheduled(queue: str | None = "orders") -> list[Execution]:
    return list(Execution.objects.in_queue(queue).filter(status="scheduled"))


def test_work_of_a_queue_goes_only_to_who_serves_it() -> None:
    make_queue()
    make_worker("w1")
    server = make_worker("w2", queues={"orders": None})
    [of_queue], [other] = waiting(), waiting(None)
    schedule(of_queue, other)
    assert reread(of_queue).worker_id == server.pk
    assert reread(other).worker_name == "w1"


def test_worker_of_queues_takes_nothing_of_the_default_one_unless_it_says_so() -> None:
    make_queue()
    worker = make_worker(queues={"orders": None})
    [execution] = waiting(None, action=make_action("core.patient", on_no_worker="wait"))
    schedule(execution)
    assert reread(execution).status == "scheduling"
    assert "none of them serves the queue default" in reread(execution).wait_reason
    worker.queues = {"orders": None, "default": None}
    worker.incarnation = 2
    worker.save()
    look(now=NOW + seconds(3))
    assert reread(execution).status == "scheduled"


def test_window_of_a_queue_is_its_slots_and_the_prefetch_buffer() -> None:
    make_queue(prefetch_buffer=2)
    make_worker(capacity=4, queues={"orders": None})
    waiting(number=20)
    look()
    assert len(scheduled()) == 6


def test_subscription_with_fewer_slots_gets_no_more_than_those() -> None:
    make_queue(prefetch_buffer=2)
    make_worker(capacity=4, queues={"orders": 2, "default": None})
    waiting(number=20)
    waiting(None, 20)
    placement = fleet.Placement()
    for _ in range(3):
        look(placement)
    assert (len(scheduled()), len(scheduled(None))) == (2, 6)


def test_slots_hold_under_several_executors_with_old_views_of_the_fleet() -> None:
    make_queue()
    make_worker(capacity=8, queues={"orders": 2})
    rows = waiting(number=40)
    views = [fleet.Placement() for _ in range(4)]
    for view in views:
        view.refresh(now=NOW)
    parts = [rows[start::4] for start in range(4)]
    at_once(
        *(
            partial(
                executions.schedule, [e.pk for e in part], placement=view, now=NOW, actor="executor"
            )
            for part, view in zip(parts, views, strict=True)
        )
    )
    assert len(scheduled()) == 2


def test_limit_of_a_queue_holds_under_several_executors_at_once() -> None:
    make_queue(max_running=5)
    for number in range(6):
        make_worker(f"w{number}", capacity=4, queues={"orders": None})
    rows = waiting(number=60)
    views = [fleet.Placement() for _ in range(6)]
    for view in views:
        view.refresh(now=NOW)
    parts = [rows[start::6] for start in range(6)]
    calls = [
        partial(executions.schedule, [e.pk for e in part], placement=v, now=NOW, actor="executor")
        for part, v in zip(parts[:3], views[:3], strict=True)
    ] + [partial(look, view) for view in views[3:]]
    outcomes = at_once(*calls)
    assert [each for each in outcomes if isinstance(each, Exception)] == []
    assert len(scheduled()) == 5
    assert not [view for view in views if look(view) is None]
    assert len(scheduled()) == 5


def test_work_of_the_retry_lane_counts_for_the_limit_of_its_queue() -> None:
    make_queue(max_running=1)
    retries = make_worker("w1", queues={"orders:retry": None})
    make_worker("w2", queues={"orders": None})
    [lost] = waiting(lane="retry")
    look()
    waiting()
    look()
    [first] = scheduled()
    assert (first.pk, first.worker_id) == (lost.pk, retries.pk)


def test_end_of_one_makes_room_for_the_next_of_a_limited_queue() -> None:
    make_queue(max_running=1)
    worker = make_worker(queues={"orders": None})
    rows = waiting(number=2)
    look()
    [first] = scheduled()
    assert not executions.schedule(
        [first.pk], placement=fleet.Placement(), now=NOW, actor="executor"
    )
    claimed = executions.claim(
        [first.key], worker_id=worker.pk, incarnation=1, now=NOW, actor="w1"
    ) or executions.claim(
        [reread(first).key], worker_id=worker.pk, incarnation=1, now=NOW, actor="w1"
    )
    ended = executions.Ended(claimed[0], Reason.SUCCEEDED, {})
    executions.finish([ended], now=NOW, actor="w1")
    look()
    [second] = scheduled()
    assert {first.pk, second.pk} == {row.pk for row in rows}


@pytest.mark.parametrize("limit", [{"max_running": 2}, {"prefetch_buffer": 0}])
def test_work_behind_a_limit_is_known_to_wait(limit: dict[str, Any]) -> None:
    """So that the end of what runs has it looked at, not the next second."""
    make_queue(**limit)
    worker = make_worker(capacity=2, queues={"orders": None, "default": None})
    waiting(number=3)
    placement = fleet.Placement()
    assert look(placement)
    held = scheduled()
    assert len(held) == 2
    assert look(placement)
    Execution.objects.filter(pk__in=[e.pk for e in held]).update(
        status="completed", reason="succeeded", ended_at=NOW
    )
    for ended in held:
        placement.finished(worker.pk, ended.subscription)
    assert not look(placement), "all of it is placed"
    assert len(scheduled()) == 1


def test_paused_queue_starts_nothing_and_its_resumption_starts_it() -> None:
    make_queue()
    make_worker(queues={"orders": None})
    [execution] = waiting()
    changes.pause("orders", reason="why not", actor="ann", now=NOW)
    schedule(execution)
    look()
    assert reread(execution).status == "requested"
    changes.resume("orders", reason="enough", actor="ann", now=NOW)
    look()
    assert reread(execution).status == "scheduled"


def test_queue_that_nobody_serves_keeps_its_work_without_touching_it() -> None:
    make_queue()
    make_worker()
    [execution] = waiting(action=make_action("core.impatient", on_no_worker="fail"))
    schedule(execution)
    look(now=NOW + timedelta(hours=1))
    row = reread(execution)
    assert (row.status, row.wait_reason, row.next_retry_at) == ("requested", "", None)


def test_queued_work_without_a_fitting_worker_waits_and_does_not_fail() -> None:
    make_queue()
    make_worker(queues={"orders": None}, runtimes=["shell"])
    [execution] = waiting(action=make_action("core.impatient", on_no_worker="fail"))
    later = NOW + timedelta(hours=1)
    make_worker().__class__.objects.update(heartbeat_at=later)
    executions.schedule([execution.pk], placement=fleet.Placement(), now=later, actor="executor")
    assert reread(execution).status == "scheduling"


def test_never_started_work_of_a_queue_is_given_back_and_not_retried() -> None:
    make_queue()
    policy = {"max_attempts": 1}
    gone = make_worker("w1", queues={"orders": None}, status="inactive")
    queued_one = make_execution(
        "scheduled", worker=gone, queue="orders", lane="input", retry_policy=policy
    )
    other = make_execution("scheduled", worker=gone, retry_policy=policy)
    expired = unclaimed.expire(
        [queued_one, other],
        reason=Reason.SCHEDULED_TIMEOUT,
        detail="not claimed",
        failed_by="sweep",
        now=NOW,
    )
    assert expired == unclaimed.Expired(ended={other.pk}, returned={queued_one.pk})
    assert (reread(queued_one).status, reread(queued_one).retry_count) == ("requested", 0)
    assert reread(other).status == "failed"


@pytest.mark.parametrize("limit", [{"queue_ttl_ms": 1000}, {"scheduled_timeout_seconds": 1.0}])
def test_limit_of_its_own_ends_queued_work_too(limit: dict[str, Any]) -> None:
    make_queue()
    worker = make_worker("w1", queues={"orders": None})
    impatient = make_execution("scheduled", worker=worker, queue="orders", lane="input", **limit)
    executions.sweep(now=impatient.start_by or NOW)
    row = reread(impatient)
    assert (row.status, row.reason) == ("failed", "scheduled_timeout")


def test_lost_attempt_of_a_queue_waits_in_its_retry_lane() -> None:
    make_queue()
    action = make_action("core.again", idempotent=True)
    worker = make_worker(queues={"orders": None})
    lost = make_execution(
        "running", worker=worker, action=action, queue="orders", lane="input",
        retry_policy={"max_attempts": 3},
    )  # fmt: skip
    attempts.end_attempts(
        [lost], reason=Reason.WORKER_LOST, detail="gone", failed_by="check", now=NOW
    )
    row = reread(lost)
    assert (row.status, row.lane, row.retry_count) == ("requested", "retry", 1)


def test_retry_lane_is_served_by_its_own_workers_and_else_by_those_of_the_queue() -> None:
    make_queue()
    first = make_worker("w1", queues={"orders": None})
    [retried] = waiting(lane="retry", retry_count=1)
    schedule(retried)
    assert reread(retried).worker_id == first.pk
    of_lane = make_worker("w2", queues={"orders:retry": 1})
    retries, inputs = waiting(lane="retry", number=3, retry_count=1), waiting(number=3)
    look()
    assert {reread(e).worker_id for e in inputs} == {first.pk}
    assert {reread(e).worker_id for e in retries} == {of_lane.pk, None}
    assert len([e for e in retries if reread(e).worker_id == of_lane.pk]) == 1, "it has one slot"


def test_paused_subscription_of_a_worker_is_passed_over_and_others_are_not() -> None:
    make_queue()
    make_queue("mail")
    until = (NOW + seconds(30)).isoformat()
    pausing = make_worker(
        "w1", queues={"orders": None, "mail": None}, queue_pauses={"orders": until}
    )
    other = make_worker("w2", queues={"orders": None})
    orders, mail = waiting("orders", 3), waiting("mail", 3)
    look()
    assert {reread(e).worker_id for e in orders} == {other.pk}
    assert {reread(e).worker_id for e in mail} == {pausing.pk}


def test_full_queue_hides_no_other_and_not_the_default_one() -> None:
    for name in ("a", "b"):
        make_queue(name, prefetch_buffer=0)
    make_worker(capacity=12, queues={"a": None, "b": None, "default": None})
    waiting("a", 200, priority=100)
    waiting("b", 4)
    waiting(None, 4)
    placement = fleet.Placement()
    look(placement)
    counts = Counter(e.queue for e in Execution.objects.filter(status="scheduled"))
    assert counts["b"] == 4
    assert counts[None] == 4
    assert counts["a"] >= 4


def test_single_free_slot_goes_to_each_in_its_turn() -> None:
    for name in ("a", "b"):
        make_queue(name, prefetch_buffer=0)
        waiting(name, 10)
    waiting(None, 10)
    worker = make_worker(capacity=1, queues={"a": 1, "b": 1, "default": 1})
    placement = fleet.Placement()
    turns = []
    held: set = set()
    for _ in range(12):
        look(placement)
        new = Execution.objects.filter(status="scheduled").exclude(pk__in=held)
        for one in new:
            turns.append(one.queue)
            held.add(one.pk)
            Execution.objects.filter(pk=one.pk).update(
                status="completed", reason="succeeded", ended_at=NOW
            )
            placement.finished(worker.pk, one.subscription)
    counts = Counter(turns)
    assert set(counts) == {"a", "b", None}
    assert min(counts.values()) >= 2


def test_suspect_of_a_queue_gets_its_turn_and_none_while_its_queue_is_paused() -> None:
    make_queue()
    make_worker(queues={"orders": None})
    [suspect] = waiting(lost_workers=2, lane="retry", retry_count=2)
    changes.pause("orders", reason="why not", actor="ann", now=NOW)
    [other] = waiting(None)
    make_worker("w2")
    look()
    assert reread(suspect).status == "requested"
    assert reread(other).status == "scheduled"
    changes.resume("orders", reason="on", actor="ann", now=NOW)
    look()
    assert reread(suspect).status == "scheduled"


def test_no_worker_is_kept_empty_for_a_suspect_of_a_paused_queue() -> None:
    make_queue()
    make_worker(queues={"orders": None, "default": None})
    [suspect] = waiting(lost_workers=2, lane="retry", retry_count=2)
    changes.pause("orders", reason="why not", actor="ann", now=NOW)
    [other] = waiting(None)
    look()
    assert reread(suspect).status == "requested"
    assert reread(other).status == "scheduled"


def test_no_worker_is_kept_empty_for_a_suspect_of_a_queue_at_its_limit() -> None:
    make_queue(max_running=1)
    elsewhere = make_worker("elsewhere", status="draining", queues={"orders": None})
    make_execution("running", worker=elsewhere, queue="orders", lane="input")
    make_worker(queues={"orders": None, "default": None})
    [suspect] = waiting(lost_workers=2, lane="retry", retry_count=2)
    [other] = waiting(None)
    look()
    assert reread(suspect).status == "requested"
    assert reread(other).status == "scheduled"


def test_what_only_full_workers_may_have_keeps_no_other_work_of_its_queue_waiting() -> None:
    make_queue("orders")
    make_queue("bills")
    full = make_worker("full", capacity=1, queues={"orders": 1})
    make_execution("running", worker=full, queue="orders", lane="input")
    make_worker("free", capacity=3, queues={"orders": None, "bills": None})
    waiting(number=40, pinned_worker=full)
    others = [*waiting(number=2), *waiting("bills", 1)]
    assert look()
    assert {reread(each).worker_name for each in others} == {"free"}
    assert 0 < Execution.objects.exclude(wait_reason="").count() < 20, "most are not even written"


def waiting_for_who_is_gone() -> list[Execution]:
    """Executions that a worker is free for, behind many of the same queue that none can run."""
    make_queue()
    labels = {"gpu": "yes"}
    make_worker("gone", labels=labels, queues={"orders": None}, status="inactive")
    make_worker("free", capacity=3, queues={"orders": None})
    waiting(number=40, worker_selector=labels)
    return waiting(number=2)


def test_what_waits_for_a_worker_that_is_gone_keeps_no_other_work_of_its_queue_waiting() -> None:
    others = waiting_for_who_is_gone()
    look()
    assert {reread(each).worker_name for each in others} == {"free"}
    assert 0 < Execution.objects.filter(status="scheduling").count() < 40, "most are not written"


def test_each_turn_of_a_look_ends_its_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a policy limits is held in one order, and only once in each: else two executors could
    wait for each other."""
    others = waiting_for_who_is_gone()
    happened: list[str] = []
    read = backlog.first_of_queues

    def reading(*arguments: Any, **keywords: Any) -> list[Execution]:
        happened.append("read")
        transaction.on_commit(lambda: happened.append("commit"))
        return read(*arguments, **keywords)

    monkeypatch.setattr(backlog, "first_of_queues", reading)
    look()
    assert {reread(each).worker_name for each in others} == {"free"}
    turns = happened.count("read")
    assert turns > 1
    assert happened == ["read", "commit"] * turns


def test_ended_executions_free_the_room_of_their_subscription() -> None:
    make_queue(prefetch_buffer=0)
    worker = make_worker(capacity=2, queues={"orders": None})
    waiting(number=2)
    placement = fleet.Placement()
    look(placement)
    assert placement.queue_room("orders") == 0
    [first, _] = scheduled()
    Execution.objects.filter(pk=first.pk).update(
        status="completed", reason="succeeded", ended_at=NOW
    )
    executions.note_completed([first.pk], placement=placement)
    assert placement.queue_room("orders") == 1
    assert worker.pk in placement.seats
