"""What waits for a policy: woken, cancelled, late, and forgotten by nobody."""

from __future__ import annotations

import time
from datetime import timedelta
from types import SimpleNamespace

import pytest

from orchestrator.core import executions
from orchestrator.core.models import Execution, Worker
from orchestrator.policies import adopting, book, changes, figures, maintenance, waking
from orchestrator.policies.models import (
    Policy,
    PolicyBucket,
    PolicySlot,
    PolicyWait,
    buckets,
    busy_lines,
)
from orchestrator.policies.models.buckets import PolicySlotQuerySet
from orchestrator.policies.retention import empty_buckets
from tests.core.scheduling import schedule
from tests.factories import NOW, make_execution, make_worker, seconds
from tests.policies.play import end, look, make_policy, started, tick, waiting
from tests.rows import ended, reread

pytestmark = pytest.mark.usefixtures("database", "sent")


@pytest.fixture(autouse=True)
def workers(database: str) -> None:
    make_worker(capacity=100)


def test_cancelled_one_leaves_the_line() -> None:
    make_policy()
    first, second, third = waiting(3)
    schedule(first, second, third)
    executions.cancel(execution_id=second.pk, actor="ann", now=NOW)
    executions.note_ended([second.pk], now=NOW)
    assert list(PolicyWait.objects.values_list("execution_id", flat=True)) == [third.pk]
    end(first)
    look()
    assert started() == [third]


def test_cancelled_one_keeps_nobody_waiting_even_if_nobody_is_told() -> None:
    make_policy()
    first, second, third = waiting(3)
    schedule(first, second, third)
    executions.cancel(execution_id=second.pk, actor="ann", now=NOW)
    end(first)
    look()
    assert started() == [third]
    assert tick()["forgotten"] == 1
    assert not PolicyWait.objects.exists()


def test_deadline_ends_what_waits() -> None:
    make_policy()
    first = make_execution()
    second = make_execution(deadline_at=NOW + seconds(10))
    schedule(first, second)
    executions.sweep(now=NOW + seconds(11))
    assert ended(second) == ("failed", "deadline_passed")
    tick(now=NOW + seconds(11))
    assert not PolicyWait.objects.exists()


@pytest.mark.parametrize("period", ["hour", "day", "month"])
@pytest.mark.parametrize("ahead", [95_700, 10**9])
def test_who_is_far_behind_waits_for_no_time_beyond_the_calendar(period: str, ahead: int) -> None:
    """It would be an error for all that is looked at together with it."""
    policy = make_policy(kind="quota", period=period, limit=1)
    places = figures.InPeriod(PolicyBucket(policy=policy, used=1), NOW)
    assert NOW + timedelta(days=330) < places.again_at(ahead) <= NOW + timedelta(days=366)


def test_what_runs_when_a_policy_is_made_is_counted() -> None:
    running = waiting(2)
    schedule(*running)
    make_policy(limit=3)
    more = waiting(3)
    schedule(*more)
    assert started() == [*running, more[0]]


def test_what_was_started_by_who_did_not_know_the_policy_is_counted_soon() -> None:
    policy = make_policy(limit=2, keyed_by=["/host"])
    blind = [make_execution(parameters={"host": "a"}) for _ in range(2)]
    policy.enabled = False
    policy.save()
    schedule(*blind)
    policy.enabled = True
    policy.save()
    assert tick()["counted"] == 2
    [late] = waiting(parameters={"host": "a"})
    schedule(late)
    assert started() == blind


def test_what_runs_when_a_policy_is_enabled_is_counted() -> None:
    make_policy(limit=2, enabled=False)
    running = waiting(2)
    schedule(*running)
    changes.change("limit", {"enabled": True}, now=NOW)
    schedule(*waiting(2))
    assert started() == running


def test_all_that_runs_is_counted_however_much_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adopting, "AT_ONCE", 2)
    running = waiting(5)
    schedule(*running)
    make_policy(limit=5)
    assert PolicySlot.objects.held().count() == 5


def test_who_knows_the_key_before_a_change_starts_nothing_by_it() -> None:
    policy = make_policy(limit=1, keyed_by=["/user"])
    before = book.of([policy])
    changes.change("limit", {"keyed_by": ["/host"]}, now=NOW)
    first, second = (make_execution(parameters={"host": "h", "user": user}) for user in "uv")
    book._read = (time.monotonic(), before)
    schedule(first)
    assert started() == []
    look(now=NOW + seconds(1))
    schedule(second, now=NOW + seconds(1))
    assert started() == [first]


def test_what_was_counted_by_the_key_before_a_change_is_counted_by_the_new_one() -> None:
    policy = make_policy(limit=1, keyed_by=["/user"])
    first, second = (make_execution(parameters={"host": "h", "user": user}) for user in "uv")
    schedule(first)
    Policy.objects.filter(pk=policy.pk).update(keyed_by=["/host"])  # nobody noticed
    book.forget()
    assert tick()["counted"] == 1
    assert tick()["counted"] == 0
    schedule(second)
    assert started() == [first]


def test_slot_of_what_is_started_again_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_policy(limit=1)
    first, second = waiting(2)
    schedule(first)
    executions.give_back(unstarted=[reread(first)], now=NOW, actor="w1")
    delete = PolicySlotQuerySet.delete

    def delete_late(rows: PolicySlotQuerySet) -> tuple[int, dict[str, int]]:
        monkeypatch.setattr(PolicySlotQuerySet, "delete", delete)
        look()
        assert started() == [first]
        return delete(rows)

    monkeypatch.setattr(PolicySlotQuerySet, "delete", delete_late)
    maintenance.forget()
    assert PolicySlot.objects.held().count() == 1
    schedule(second)
    assert started() == [first]


def test_shorter_window_does_not_keep_the_debt_of_the_longer_one() -> None:
    make_policy(kind="rate", limit=10, window_seconds=60)
    rows = waiting(20)
    schedule(*rows)
    assert len(started()) == 10
    changes.change("limit", {"limit": 100, "window_seconds": 1}, now=NOW)
    look(now=NOW + seconds(2))
    assert started() == rows


def test_who_waits_for_a_rate_is_looked_at_in_time_after_a_change_of_its_limit() -> None:
    make_policy(kind="rate", limit=1, window_seconds=60)
    rows = waiting(30)
    schedule(*rows)
    changes.change("limit", {"limit": 60}, now=NOW)
    look()
    for second in range(1, 31):
        now = NOW + seconds(second)
        if second % 5 == 0:
            tick(now=now)
        look(now=now)
        assert started() == rows[: second + 1]


def test_change_of_a_limit_wakes_no_more_than_have_a_place() -> None:
    make_policy(limit=1)
    rows = waiting(6)
    schedule(*rows)
    changes.change("limit", {"limit": 3}, now=NOW)
    assert [row for row in rows if reread(row).next_retry_at == NOW] == rows[1:3]


def test_change_lets_go_of_much_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waking, "AT_ONCE", 2)
    make_policy(limit=1)
    rows = waiting(6)
    schedule(*rows)
    changes.change("limit", {"enabled": False}, now=NOW)
    assert [row for row in rows if reread(row).next_retry_at == NOW] == rows[1:3]
    assert tick()["released"] == 3
    look()
    assert started() == rows


def test_larger_limit_wakes_and_smaller_one_stops_nothing() -> None:
    make_policy(limit=1)
    rows = waiting(5)
    schedule(*rows)
    changes.change("limit", {"limit": 3}, now=NOW)
    look()
    assert started() == rows[:3]
    changes.change("limit", {"limit": 1}, now=NOW)
    assert started() == rows[:3]
    end(*rows[:2])
    look()
    assert started() == [rows[2]], "there is still as much as the limit"
    end(rows[2])
    look()
    assert started() == [rows[3]]


def test_removed_policy_keeps_nothing_waiting() -> None:
    make_policy()
    rows = waiting(3)
    schedule(*rows)
    changes.remove("limit", now=NOW)
    look()
    assert started() == rows


def test_disabled_policy_keeps_nothing_waiting_even_if_its_change_was_not_noticed() -> None:
    policy = make_policy()
    rows = waiting(3)
    schedule(*rows)
    policy.enabled = False
    policy.save()
    assert tick()["released"] == 2
    look()
    assert started() == rows


def test_what_waits_and_is_in_no_line_is_found() -> None:
    make_policy()
    first, second = waiting(2)
    schedule(first, second)
    PolicyWait.objects.all().delete()
    assert tick()["released"] == 1
    assert reread(second).next_retry_at == NOW


def test_change_of_what_is_counted_counts_from_the_beginning() -> None:
    make_policy(limit=1)
    rows = [make_execution(parameters={"host": host}) for host in ("a", "a", "b")]
    schedule(*rows)
    assert started() == rows[:1]
    changes.change("limit", {"keyed_by": ["/host"]}, now=NOW)
    look()
    assert started() == [rows[0], rows[2]]
    assert PolicySlot.objects.held().count() == 2


def test_one_that_waits_for_two_lines_wakes_the_next_in_the_first() -> None:
    """It was woken for a place that it cannot take yet."""
    make_policy("all", limit=1)
    make_policy("by-ann", scope="identity", target="ann", limit=1)
    by_ann = make_execution(requested_by="ann")
    schedule(by_ann)
    second = make_execution(requested_by="ann")
    third = make_execution(requested_by="bob")
    schedule(second, third)
    changes.change("all", {"limit": 2}, now=NOW)
    look()
    look(now=NOW + seconds(1))
    assert set(started()) == {by_ann, third}
    assert reread(second).wait_reason.startswith("policy by-ann")


def test_nothing_is_left_when_all_has_ended() -> None:
    make_policy(limit=2, keyed_by=["/host"])
    rows = [make_execution(parameters={"host": str(place % 3)}) for place in range(12)]
    schedule(*rows)
    for _ in range(4):
        end(*started())
        look()
    assert Execution.objects.open().count() == 0
    assert not PolicySlot.objects.exists()
    assert not PolicyWait.objects.exists()


def test_empty_buckets_are_removed_and_others_kept() -> None:
    make_policy(limit=5, keyed_by=["/host"])
    make_policy("quota", kind="quota", period="month", limit=100)
    over, running = (make_execution(parameters={"host": host}) for host in "ab")
    schedule(over, running)
    end(over)
    later = NOW + seconds(86_400)
    assert [each.key_shown for each in empty_buckets(later)] == ['host="a"']
    assert PolicyBucket.objects.count() == 3


def test_clock_that_was_set_back_keeps_nobody_waiting() -> None:
    make_policy(kind="quota", period="hour", limit=1)
    first, second = waiting(2)
    schedule(first, second)
    back = NOW - seconds(7_200)
    assert maintenance.bring_forward(now=back) == 1
    bucket = PolicyBucket.objects.get()
    assert (bucket.period_started_at, bucket.used) == (None, 0)
    assert tick(now=back)["woken"] == 1


def test_rate_does_not_wait_for_a_clock_that_was_set_back() -> None:
    make_policy(kind="rate", limit=1, window_seconds=10)
    first, second = waiting(2)
    schedule(first, second)
    back = NOW - seconds(7_200)
    Worker.objects.update(heartbeat_at=back)
    assert maintenance.bring_forward(now=back) == 1
    assert tick(now=back + seconds(10))["woken"] == 1
    look(now=back + seconds(10))
    assert started() == [first, second]


def test_who_was_postponed_by_a_later_clock_is_woken_all_the_same() -> None:
    make_policy(limit=1)
    first, second = waiting(2)
    schedule(first, second)
    hour = NOW + seconds(3_600)
    Execution.objects.update(deadline_at=NOW + seconds(86_400))
    Execution.objects.filter(pk=second.pk).update(next_retry_at=hour)
    Worker.objects.update(heartbeat_at=hour)
    look(now=hour)
    back = NOW + seconds(1_800)
    executions.bring_forward(now=back)
    maintenance.bring_forward(now=back)
    end(first, now=back)
    Worker.objects.update(heartbeat_at=back)
    look(now=back)
    assert started() == [second]


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_statement_of_lines_reads_what_the_query_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    make_policy(limit=1, keyed_by=["/host"])
    rows = [make_execution(parameters={"host": n % 3}, priority=n % 2) for n in range(15)]
    schedule(*rows)
    places = {bucket.pk: n for n, bucket in enumerate(PolicyBucket.objects.all(), 1)}
    by_statement = PolicyWait.objects.next_in_line(places, NOW)
    assert [each.bucket_id for each in by_statement] == sorted(
        each.bucket_id for each in by_statement
    )
    assert len(by_statement) == 6
    monkeypatch.setattr(buckets, "connection", SimpleNamespace(vendor="other"))
    assert PolicyWait.objects.next_in_line(places, NOW) == by_statement


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_slots_are_counted_by_policy_and_no_further_than_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keyed = make_policy("keyed", limit=3, keyed_by=["/host"])
    plain, empty = make_policy("plain", limit=20), make_policy("empty", limit=1, enabled=False)
    rows = [make_execution(parameters={"host": n % 3}) for n in range(9)]
    schedule(*rows)
    over = make_execution("completed")
    PolicySlot.objects.create(bucket=plain.buckets.get(), execution=over, taken_at=NOW)
    most = {keyed.pk: 5, plain.pk: 100, empty.pk: 1}
    by_statement = PolicySlot.objects.count_up_to(most)
    assert by_statement == {keyed.pk: 5, plain.pk: 9, empty.pk: 0}
    monkeypatch.setattr(buckets, "connection", SimpleNamespace(vendor="other"))
    assert PolicySlot.objects.count_up_to(most) == {keyed.pk: 5, plain.pk: 9}


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
@pytest.mark.parametrize("vendor", ["postgresql", "other"])
def test_statements_fill_a_line_as_the_queries_do(
    vendor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(busy_lines, "connection", SimpleNamespace(vendor=vendor))
    make_policy(limit=2, keyed_by=["/host"])
    rows = [make_execution(parameters={"host": n % 2}, priority=n // 8) for n in range(12)]
    schedule(*rows)
    assert started() == rows[8:], "those of the higher priority, two of each key"
    end(rows[8], rows[9], rows[11])
    look()
    assert started() == [rows[0], rows[1], rows[3], rows[10]]
    executions.cancel(execution_id=rows[2].pk, actor="ann", now=NOW)
    executions.note_ended([rows[2].pk], now=NOW)
    end(rows[10])
    look()
    assert started() == [rows[0], rows[1], rows[3], rows[4]]
    by_key = PolicyBucket.objects.order_by("key_shown")
    assert [bucket.slots.count() for bucket in by_key] == [2, 2]
    waits = PolicyWait.objects.values_list("execution_id", flat=True).order_by("execution_id")
    assert list(waits) == [row.pk for row in rows[5:8]]
