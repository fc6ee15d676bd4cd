"""What may start, with policies of every kind: on both databases, through the executor's doors."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from orchestrator.core import executions, fleet, publisher
from orchestrator.core.executions import scheduling
from orchestrator.core.models import Execution, Worker
from orchestrator.core.reasons import Reason
from orchestrator.policies import admitting, figures, keys
from orchestrator.policies.models import PolicyBucket, PolicySlot, PolicyWait
from tests.core.scheduling import schedule
from tests.factories import NOW, make_action, make_execution, make_worker, seconds
from tests.policies.play import (
    claim,
    come_back,
    end,
    look,
    make_policy,
    started,
    tick,
    waiting,
)
from tests.queues.play import make_queue
from tests.rows import ended, reread

pytestmark = pytest.mark.usefixtures("database", "sent")


@pytest.fixture(autouse=True)
def workers(database: str) -> None:
    make_worker(capacity=100)


# --- concurrency ----------------------------------------------------------------------------------


def test_no_more_start_than_the_limit_and_the_others_say_why() -> None:
    make_policy(limit=3)
    rows = waiting(5)
    schedule(*rows)
    assert started() == rows[:3]
    left = reread(rows[3])
    assert (left.status, left.wait_reason) == ("scheduling", "policy limit: at most 3 at once")
    assert left.next_retry_at == NOW + figures.CONCURRENCY_AGAIN
    assert PolicySlot.objects.held().count() == 3


def test_end_lets_the_next_one_start() -> None:
    make_policy(limit=2)
    rows = waiting(4)
    schedule(*rows)
    assert end(rows[0]) == 1
    look()
    assert started() == rows[1:3]
    assert set(PolicySlot.objects.values_list("execution_id", flat=True)) == {
        rows[1].pk,
        rows[2].pk,
    }


def test_lost_message_of_an_end_is_made_good_by_maintenance() -> None:
    make_policy()
    first, second = waiting(2)
    schedule(first, second)
    end(first, is_told=False)
    look()
    assert started() == []
    assert tick()["woken"] == 1
    look()
    assert started() == [second]


def test_slot_of_an_execution_that_ended_counts_no_more_whoever_ended_it() -> None:
    make_policy()
    first, second = waiting(2)
    schedule(first)
    Execution.objects.filter(pk=first.pk).update(
        status="abandoned", ended_at=NOW, reason="worker_lost"
    )
    schedule(second)
    assert started() == [second]
    assert PolicySlot.objects.held().count() == 1


def test_each_key_has_the_limit() -> None:
    make_policy(limit=1, keyed_by=["/host", "/port"])
    a, b, c, d = (
        make_execution(parameters=each)
        for each in (
            {"host": "a", "port": 1},
            {"host": "a", "port": 1.0, "more": True},
            {"host": "a", "port": 2},
            {"port": 1},
        )
    )
    schedule(a, b, c, d)
    assert started() == [a, c, d]
    assert reread(b).wait_reason == 'policy limit for host="a", port=1: at most 1 at once'
    assert set(PolicyBucket.objects.values_list("key_shown", flat=True)) == {
        'host="a", port=1',
        'host="a", port=2',
        "host=null, port=1",
    }


def test_secrets_are_not_shown_in_keys() -> None:
    action = make_action(parameters_schema={"properties": {"pin": {"secret": True}}})
    make_policy(keyed_by=["/pin"])
    one, other = (make_execution(action=action, parameters={"pin": pin}) for pin in ("1", "2"))
    schedule(one, other)
    assert started() == [one, other]
    assert set(PolicyBucket.objects.values_list("key_shown", flat=True)) == {'pin="***"'}


@pytest.mark.parametrize(
    ("pointer", "value"),
    [("/a/b", 1), ("/list/1", "y"), ("/x~1y", 2), ("/a~0b", 3), ("/none", None), ("/a/b/c", None),
     ("/list/9", None)],
)  # fmt: skip
def test_pointers_lead_into_parameters(pointer: str, value: Any) -> None:
    parameters = {"a": {"b": 1}, "list": ["x", "y"], "x/y": 2, "a~b": 3}
    assert keys.values_of(parameters, [pointer]) == [value]


# --- scopes ---------------------------------------------------------------------------------------


def test_policies_concern_what_their_scope_says() -> None:
    shop, other = make_action("shop.sell"), make_action("core.echo")
    make_policy("p", scope="pack", target="shop", limit=3)
    make_policy("a", scope="action", target="shop.sell", limit=2)
    make_policy("i", scope="identity", target="ann", limit=1)
    make_policy("r", scope="rule", target="ops.nightly", limit=1)
    sold = waiting(4, action=shop)
    by_ann = waiting(2, action=other, requested_by="ann")
    by_rule = waiting(2, action=other, requested_by="rule:ops.nightly")
    free = waiting(2, action=other, requested_by="bob")
    schedule(*sold, *by_ann, *by_rule, *free)
    assert set(started()) == {*sold[:2], by_ann[0], by_rule[0], *free}


def test_all_policies_have_to_admit_and_who_is_refused_takes_nothing() -> None:
    action = make_action("shop.sell")
    make_policy("everything", limit=10)
    make_policy("shop", scope="pack", target="shop", kind="rate", limit=5, window_seconds=60)
    make_policy("sell", scope="action", target="shop.sell", limit=2)
    rows = waiting(6, action=action)
    schedule(*rows)
    assert started() == rows[:2]
    taken = {str(each.policy): each for each in PolicyBucket.objects.select_related("policy")}
    assert PolicySlot.objects.filter(bucket=taken["everything"]).count() == 2
    interval = timedelta(seconds=12)
    assert taken["shop"].theoretical_at == NOW + 2 * interval, "four refused ones took nothing"


def test_requester_may_be_named_as_an_identity_and_as_a_rule() -> None:
    make_policy("i", scope="identity", target="rule:ops.nightly", limit=1)
    make_policy("r", scope="rule", target="ops.nightly", limit=5)
    rows = waiting(3, requested_by="rule:ops.nightly")
    schedule(*rows)
    assert started() == rows[:1]


def test_disabled_policy_limits_nothing() -> None:
    make_policy(enabled=False)
    rows = waiting(3)
    schedule(*rows)
    assert started() == rows
    assert not PolicyBucket.objects.exists()


# --- rate and quota -------------------------------------------------------------------------------


def test_rate_says_exactly_when_each_may_start() -> None:
    make_policy(kind="rate", limit=10, window_seconds=1)
    rows = waiting(25)
    schedule(*rows)
    assert started() == rows[:10]
    due = [reread(row).next_retry_at for row in rows[10:]]
    assert due == [NOW + seconds(0.1 * (1 + place)) for place in range(15)]


def test_each_starts_at_its_time_and_no_earlier() -> None:
    make_policy(kind="rate", limit=10, window_seconds=1)
    rows = waiting(14)
    schedule(*rows)
    look(now=NOW + seconds(0.099))
    assert len(started()) == 10
    look(now=NOW + seconds(0.2))
    assert len(started()) == 12
    look(now=NOW + seconds(0.4))
    assert len(started()) == 14


@pytest.mark.slow
def test_rate_over_a_minute_of_looks() -> None:
    make_policy(kind="rate", limit=10, window_seconds=1)
    make_worker("w2", capacity=2_000)
    rows = waiting(130)
    schedule(*rows)
    for tenth in range(1, 121):
        look(now=NOW + seconds(tenth / 10))
    times = sorted(row.scheduled_at for row in started() if row.scheduled_at)
    assert len(times) == 130
    for at in times:
        within = sum(at <= each <= at + seconds(1) for each in times)
        assert within <= 20


def test_newcomer_does_not_overtake_who_waits_for_a_rate() -> None:
    make_policy(kind="rate", limit=1, window_seconds=10)
    first, second = waiting(2)
    schedule(first, second)
    [newcomer] = waiting()
    now = NOW + seconds(10)
    schedule(newcomer, now=now)
    assert started() == [first]
    look(now=now)
    assert started() == [first, second]
    assert reread(newcomer).next_retry_at is not None


def test_quota_counts_starts_of_a_period_and_says_when_the_next_begins() -> None:
    make_policy(kind="quota", limit=2, period="day", timezone="Europe/Berlin")
    rows = waiting(5)
    schedule(*rows)
    assert started() == rows[:2]
    midnight = datetime.fromisoformat("2026-03-02T00:00+01:00")
    due = [reread(row).next_retry_at for row in rows[2:]]
    assert due == [midnight, midnight, midnight + timedelta(days=1)]
    Worker.objects.update(heartbeat_at=midnight)
    look(now=midnight)
    assert started() == rows[:4]


def test_day_of_25_hours_has_one_quota() -> None:
    make_policy(kind="quota", limit=1, period="day", timezone="Europe/Berlin")
    late = datetime.fromisoformat("2026-10-25T23:30+01:00")
    early = datetime.fromisoformat("2026-10-25T00:10+02:00")
    rows = []
    for now in (early, late):
        Worker.objects.update(heartbeat_at=now)
        rows += waiting(now=now)
        schedule(rows[-1], now=now)
    assert len(started()) == 1
    assert reread(rows[-1]).next_retry_at == datetime.fromisoformat("2026-10-26T00:00+01:00")


def test_ended_ones_do_not_give_a_quota_back() -> None:
    make_policy(kind="quota", limit=1, period="hour")
    first, second = waiting(2)
    schedule(first)
    end(first)
    tick()
    schedule(second)
    assert started() == []


@pytest.mark.parametrize("reason", ["moved", "given_back", "unroutable", "dispatch_failed"])
def test_quota_counts_once_what_was_sent_and_did_not_begin(reason: str) -> None:
    make_policy(kind="quota", limit=1, period="day")
    first, second = waiting(2)
    for _ in range(3):
        schedule(first)
        assert started() == [first], "its place is counted already"
        executions.give_back(unstarted=[reread(first)], now=NOW, actor="w1", reason=Reason(reason))
    schedule(first, second)
    assert started() == [first]
    assert PolicyBucket.objects.get().used == 1


def test_quota_counts_in_the_next_period_what_is_sent_again_then() -> None:
    make_policy(kind="quota", limit=1, period="hour")
    first, second = waiting(2)
    schedule(first)
    executions.give_back(unstarted=[reread(first)], now=NOW, actor="w1", reason=Reason.MOVED)
    later = NOW + timedelta(hours=1)
    Execution.objects.update(deadline_at=later + timedelta(hours=1))
    Worker.objects.update(heartbeat_at=later)
    schedule(first, second, now=later)
    assert started() == [first]


def test_quota_counts_what_began_and_comes_again() -> None:
    make_policy(kind="quota", limit=5, period="day")
    [first] = waiting()
    schedule(first)
    claim(first)
    come_back(first, reason="worker_stopped")
    schedule(first)
    assert PolicyBucket.objects.get().used == 2


def test_quota_is_not_used_up_while_nothing_can_be_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_policy(kind="quota", limit=10, period="day")
    [row] = waiting()

    def fail(*_: Any, **__: Any) -> None:
        raise publisher.BrokerUnavailable

    monkeypatch.setattr(publisher, "send", fail)
    for second in range(0, 8, 2):
        look(now=NOW + seconds(second))
    assert reread(row).attempt == 4
    assert PolicyBucket.objects.get().used == 1


def test_rate_with_many_keys_asks_no_more_than_with_one() -> None:
    make_policy(kind="rate", limit=1, window_seconds=60, keyed_by=["/host"])

    def statements(hosts: int) -> int:
        rows = [make_execution(parameters={"host": str(n % hosts)}) for n in range(20)]
        with CaptureQueriesContext(connection) as asked:
            schedule(*rows)
        return len(asked)

    statements(20)  # they start, and all that come now wait
    assert statements(20) == statements(1)


def test_time_of_who_is_far_behind_in_a_rate_is_not_before_all_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admitting, "READ_AHEAD", 3)
    make_policy(kind="rate", limit=1, window_seconds=10)
    rows = waiting(8)
    schedule(*rows[:7])
    schedule(rows[7])
    assert reread(rows[7]).next_retry_at == NOW + seconds(70)


# --- what exceeds it ------------------------------------------------------------------------------


def test_policy_that_rejects_ends_what_exceeds_it() -> None:
    make_policy(limit=1, on_exceed="reject")
    first, second = waiting(2)
    schedule(first, second)
    assert ended(second) == ("failed", "policy_exceeded")
    assert "policy limit: at most 1 at once" in str(reread(second).result)
    assert not PolicyWait.objects.exists()


def test_policy_that_rejects_lets_wait_what_it_has_admitted_before() -> None:
    make_policy(limit=1, on_exceed="reject")
    [first] = waiting()
    schedule(first)
    executions.give_back(unstarted=[reread(first)], now=NOW, actor="w1", reason=Reason.MOVED)
    urgent = make_execution(priority=5)
    schedule(first, urgent)
    assert started() == [urgent]
    assert reread(first).wait_reason == "policy limit: at most 1 at once"
    end(urgent)
    look()
    assert started() == [first]


def test_what_has_run_never_ends_as_if_it_had_not() -> None:
    make_policy(limit=1, on_exceed="reject")
    [first] = waiting()
    schedule(first)
    claim(first)
    come_back(first, reason="worker_stopped")
    [other] = waiting()
    schedule(other)
    look()
    assert started() == [other]
    assert reread(first).ended_at is None


def test_error_of_a_policy_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    make_policy(limit=10)
    rows = waiting(3)

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("cannot count")

    monkeypatch.setattr(admitting, "_read_lines", fail)
    with pytest.raises(RuntimeError):
        schedule(*rows)
    with pytest.raises(RuntimeError):
        look()
    assert started() == []
    assert not PolicyBucket.objects.exists(), "all of it was undone"


# --- order ----------------------------------------------------------------------------------------


def test_line_is_in_the_order_of_priority_and_age() -> None:
    make_policy()
    [first] = waiting()
    schedule(first)
    low, high, middle = (make_execution(priority=each) for each in (-1, 5, 0))
    late = make_execution(priority=5)
    schedule(low, high, middle, late)
    order = []
    running = first
    for _ in range(4):
        assert end(running) == 1
        look()
        [running] = started()
        order.append(running)
    assert order == [high, late, middle, low]


def test_newcomer_waits_behind_those_in_line_although_a_place_is_free() -> None:
    make_policy()
    first, second = waiting(2)
    schedule(first, second)
    end(first, is_told=False)
    [newcomer] = waiting()
    schedule(newcomer)
    assert started() == []
    assert reread(second).next_retry_at == NOW, "it was woken"
    look()
    assert started() == [second]


def test_more_urgent_newcomer_goes_first() -> None:
    make_policy()
    first, second = waiting(2)
    schedule(first, second)
    end(first, is_told=False)
    urgent = make_execution(priority=9)
    schedule(urgent)
    assert started() == [urgent]


def test_who_is_due_while_all_workers_are_full_keeps_its_place() -> None:
    make_policy()
    first, old = waiting(2)
    schedule(first, old)
    end(first)
    now = NOW + seconds(5)
    [newcomer] = waiting()
    schedule(newcomer, now=now)
    assert started() == []
    look(now=now)
    assert started() == [old]


def test_who_is_due_and_not_looked_at_does_not_keep_others_waiting_for_long() -> None:
    make_policy()
    first, old = waiting(2)
    schedule(first, old)
    end(first)
    [newcomer] = waiting()
    schedule(newcomer, now=NOW + seconds(11))
    assert started() == [newcomer]


def test_one_that_was_due_and_has_no_worker_keeps_nobody_waiting() -> None:
    make_policy()
    patient = make_action("core.patient", runtime="container", on_no_worker="wait")
    first, stuck, third = waiting(), waiting(action=patient), waiting()
    make_worker("w2", runtimes=["container"])
    schedule(*first, *stuck, *third)
    Worker.objects.filter(name="w2").update(heartbeat_at=NOW - seconds(100))
    end(*first)
    look(now=NOW + seconds(1))
    assert started() == []
    tick(now=NOW + seconds(4))
    look(now=NOW + seconds(4))
    assert started() == third


# --- other doors ----------------------------------------------------------------------------------


def test_limit_holds_for_queues_too() -> None:
    make_queue(max_running=4)
    make_worker("w2", capacity=50, queues={"orders": None})
    make_policy(limit=3)
    rows = waiting(6, queue="orders", lane="input")
    schedule(*rows)
    look()
    assert started() == rows[:3]


def test_queues_and_the_default_one_share_a_limit() -> None:
    make_queue()
    make_worker("w2", capacity=50, queues={"orders": None})
    make_policy(limit=4)
    waiting(5, queue="orders", lane="input")
    waiting(5)
    look()
    assert len(started()) == 4


def test_retry_passes_the_same_door() -> None:
    make_policy()
    first, second = waiting(2)
    schedule(first, second)
    executions.give_back(unstarted=[reread(first)], now=NOW, actor="w1")
    assert tick()["woken"] == 1
    look()
    assert started() == [first], "it is older"
    assert PolicySlot.objects.count() == 1


def test_refused_ones_give_their_seats_back() -> None:
    make_policy(limit=1)
    view = fleet.Placement()
    view.refresh(now=NOW)
    free = view.free()
    schedule(*waiting(20), placement=view)
    assert view.free() == free - 1


def test_what_a_policy_refuses_does_not_stand_before_what_has_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduling, "SCREEN_SECONDS", 60.0)  # enough for all, however slow
    Worker.objects.update(capacity=2)
    action = make_action("shop.sell")
    make_policy(scope="action", target="shop.sell", limit=1)
    sold = waiting(300, action=action)
    others = waiting(2)
    look()
    assert started() == [sold[0], *others]
    assert Execution.objects.backlog(NOW).count() == 0


def test_what_waits_for_a_policy_is_not_looked_at_before_its_time() -> None:
    """Other pauses that are so long are from a clock that was set back since."""
    make_policy(kind="quota", limit=1, period="month")
    rows = waiting(2)
    schedule(*rows)
    due_at = reread(rows[1]).next_retry_at
    assert due_at is not None
    assert due_at - NOW > timedelta(days=20)
    assert list(Execution.objects.backlog(NOW + seconds(60))) == []


# --- without policies -----------------------------------------------------------------------------


def test_without_policies_nothing_is_asked(django_assert_num_queries: Any) -> None:
    rows = waiting(3)
    with django_assert_num_queries(0):
        assert executions.note_ended([row.pk for row in rows], now=NOW) == 0
    schedule(*rows)
    assert started() == rows
