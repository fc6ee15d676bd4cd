"""Dead letters: each is settled once, a stale one changes nothing, an odd one stops no other."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from kombu.message import Message

from orchestrator.core import brokers, dead_letters, executions, fleet, messages, topology
from orchestrator.core.dead_letters import Drained, Letter
from orchestrator.core.executions.logged import MOST_LINES
from orchestrator.core.models import DLQEntry, Execution, ExecutionEvent, Tally
from orchestrator.core.states import ExecutionStatus
from tests.factories import NOW, make_action, make_execution, make_worker
from tests.logged import logged
from tests.rows import reread

pytestmark = pytest.mark.usefixtures("database", "sent")

S = ExecutionStatus
RETRY = {"max_attempts": 3, "backoff": "none"}


def unclaimed(**values: Any) -> Execution:
    """Dispatched to a worker that is gone."""
    values.setdefault("worker", make_worker(status="inactive"))
    return make_execution(S.SCHEDULED, **values)


def death(worker_id: int | None = 1, reason: str = "expired") -> dict[str, Any]:
    return {
        "count": 1,
        "reason": reason,
        "queue": f"worker.{worker_id}.executions",
        "exchange": "muster.executions",
        "routing-keys": [f"execution.dispatch.worker.{worker_id}"],
        "time": NOW,
    }


def letter(execution: Execution, *, attempt: int | None = None, reason: str = "expired") -> Letter:
    number = execution.attempt if attempt is None else attempt
    message = messages.dispatch([(execution.pk, number)], worker_id=execution.worker_id or 0)
    headers = message.headers() | {"x-death": [death(execution.worker_id, reason)]}
    return read(message.body(), headers)


def read(body: Any, headers: dict[str, Any] | None = None) -> Letter:
    headers = {"task": messages.RUN} if headers is None else headers
    return dead_letters.read(Message(body=body, headers=headers))


def settle(*letters: Letter, now: datetime = NOW) -> Drained:
    return dead_letters.settle(letters, now=now)


def test_expired_letter_ends_its_execution_and_is_kept() -> None:
    worker = make_worker("w1", status="inactive")
    execution = unclaimed(worker=worker, parameters={"message": "hello"})
    assert settle(letter(execution)) == Drained(settled=1)
    row = reread(execution)
    assert (row.status, row.reason, row.ended_at) == ("failed", "queue_ttl_expired", NOW)
    assert row.result == {
        "error": "Worker queue TTL expired",
        "message": "w1 did not take the execution within 300 s; it may be down or overloaded",
        "failed_by": "dead_letter_handler",
    }
    entry = DLQEntry.objects.get()
    assert (entry.subject_id, entry.attempt) == (execution.pk, 1)
    assert (entry.dlq_reason, entry.raw_body) == ("queue_ttl_expired", None)
    assert entry.original_exchange == "muster.executions"
    assert entry.original_queue == f"worker.{worker.pk}.executions"
    assert entry.original_routing_key == f"execution.dispatch.worker.{worker.pk}"
    assert entry.x_death == [death(worker.pk) | {"time": NOW.isoformat()}]
    assert entry.snapshot["parameters"] == {"message": "hello"}
    assert (entry.snapshot["status"], entry.snapshot["worker"]) == ("scheduled", "w1")
    assert entry.dlq_timestamp == NOW


def test_each_letter_of_a_batch_says_which_worker_did_not_take_its_execution() -> None:
    both = [unclaimed(worker=make_worker(name, status="inactive")) for name in ("w1", "w2")]
    both[1].queue_ttl_ms = 2000
    both[1].save()
    assert settle(*map(letter, both)) == Drained(settled=2)
    assert [(reread(execution).result or {})["message"] for execution in both] == [
        "w1 did not take the execution within 300 s; it may be down or overloaded",
        "w2 did not take the execution within 2 s; it may be down or overloaded",
    ]


def test_expired_letter_of_queued_work_opens_no_investigation(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It waits for a worker of its queue, and may complete."""
    queued = unclaimed(queue="orders", lane="input")
    assert settle(letter(queued)) == Drained(returned=1)
    assert reread(queued).status == "requested"
    assert not DLQEntry.objects.exists()
    (line,) = logged(caplog, "dead letter drained")
    assert line["goes_back"] is True


def test_expired_letter_of_a_busy_worker_sends_its_execution_back(
    sent: list[messages.Message],
) -> None:
    execution = unclaimed(worker=make_worker("busy", capacity=1))
    assert settle(letter(execution)) == Drained(returned=1)
    row = reread(execution)
    assert (row.status, row.reason, row.retry_count) == ("requested", "queue_ttl_expired", 0)
    assert [message.task for message in sent] == [messages.SCHEDULE]
    assert not DLQEntry.objects.exists(), "nothing is wrong with it"


def test_each_letter_is_logged_with_its_execution_and_what_became_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ended = unclaimed(worker=make_worker("gone", status="inactive"))
    settle(letter(ended), read("no json"))
    returned = unclaimed(worker=make_worker("busy", capacity=1), attempt=4)
    settle(letter(returned))
    lines = {line["execution_id"]: line for line in logged(caplog, "dead letter drained")}
    facts = ("action", "attempt", "worker", "reason", "goes_back")
    of_ended, of_returned = (
        [lines[str(each.pk)][name] for name in facts] for each in (ended, returned)
    )
    assert of_ended == [ended.action_ref, 1, "gone", "queue_ttl_expired", False]
    assert of_returned == [returned.action_ref, 4, "busy", "queue_ttl_expired", True]
    (unreadable,) = logged(caplog, "unreadable dead letters kept")
    assert unreadable["n"] == 1


def test_very_many_letters_do_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    worker = make_worker(status="inactive")
    settle(*(letter(unclaimed(worker=worker)) for _ in range(MOST_LINES + 3)))
    assert len(logged(caplog, "dead letter drained")) == MOST_LINES
    (more,) = logged(caplog, "more lines left out")
    assert (more["line"], more["n"]) == ("dead letter drained", 3)


def test_letters_are_counted_by_their_outcome_with_their_wait() -> None:
    expired = unclaimed()
    settle(letter(expired), letter(expired), read(b"{", {}), now=NOW + timedelta(seconds=7))
    counted = Tally.objects.filter(metric="muster_dlq_letters_total")
    assert dict(counted.values_list("reason", "value")) == {
        "settled": 1,
        "stale": 1,
        "unreadable": 1,
    }
    waited = Tally.objects.filter(metric="muster_dlq_processing_seconds")
    assert dict(waited.values_list("part", "value")) == {"10": 2, "sum": 14}


def test_rejected_letter_says_so() -> None:
    execution = unclaimed()
    settle(letter(execution, reason="rejected"))
    assert reread(execution).reason == "message_rejected"
    assert DLQEntry.objects.get().dlq_reason == "message_invalid"


def test_letter_without_the_brokers_account_still_ends_its_execution() -> None:
    execution = unclaimed()
    message = messages.dispatch([execution.key], worker_id=1)
    assert settle(read(message.body(), message.headers())) == Drained(settled=1)
    assert reread(execution).is_terminal


def test_letter_goes_to_another_attempt_where_the_policy_allows(
    sent: list[messages.Message],
) -> None:
    action = make_action("core.again", retry_policy=RETRY)
    execution = unclaimed(action=action)
    assert settle(letter(execution)) == Drained(settled=1)
    row = reread(execution)
    assert (row.status, row.retry_count, row.reason) == ("requested", 1, "queue_ttl_expired")
    assert DLQEntry.objects.get().attempt == 1
    assert [message.task for message in sent] == [messages.SCHEDULE]


@pytest.mark.parametrize("status", sorted(set(S) - {S.SCHEDULED}))
def test_stale_letter_changes_nothing(status: str, sent: list[messages.Message]) -> None:
    execution = make_execution(status, attempt=1)
    before = Execution.objects.filter(pk=execution.pk).values().get()
    assert settle(letter(execution)) == Drained(stale=1)
    assert Execution.objects.filter(pk=execution.pk).values().get() == before
    assert not DLQEntry.objects.exists()
    assert not ExecutionEvent.objects.exists()
    assert sent == []


def test_letter_of_an_earlier_attempt_does_not_touch_the_next() -> None:
    execution = unclaimed(attempt=2)
    assert settle(letter(execution, attempt=1)) == Drained(stale=1)
    assert reread(execution).status == "scheduled"
    assert not DLQEntry.objects.exists()


def test_letter_of_an_unknown_execution_is_stale() -> None:
    known = unclaimed()
    assert settle(letter(Execution(pk=UUID(int=7), attempt=1))) == Drained(stale=1)
    assert reread(known).status == "scheduled"


def test_same_letter_twice_makes_one_entry() -> None:
    execution = unclaimed()
    twice = letter(execution)
    assert settle(twice, twice) == Drained(settled=1, stale=1)
    assert settle(twice) == Drained(stale=1)
    assert DLQEntry.objects.count() == 1
    assert ExecutionEvent.objects.count() == 1


def test_letters_of_two_attempts_of_one_execution_make_two_entries() -> None:
    action, worker = make_action("core.again", retry_policy=RETRY), make_worker()
    execution = unclaimed(action=action, worker=worker, queue_ttl_ms=5_000)
    settle(letter(execution))
    executions.schedule([execution.pk], placement=fleet.Placement(), now=NOW, actor="executor")
    settle(letter(reread(execution)), now=NOW + timedelta(seconds=1))
    entries = DLQEntry.objects.order_by("pk").values_list("subject_id", "attempt")
    assert list(entries) == [(execution.pk, 1), (execution.pk, 2)]


def test_letter_that_lists_attempts_settles_each_by_its_own_status() -> None:
    gone, beating = make_worker("gone", status="inactive"), make_worker("beating")
    dead, other = (unclaimed(worker=gone, pinned_worker=gone) for _ in range(2))
    claimed = make_execution(S.RUNNING, worker=gone, attempt=1)
    later = unclaimed(worker=gone, attempt=2)
    busy = unclaimed(worker=beating)
    attempts = [dead.key, claimed.key, (later.pk, 1), busy.key, other.key]
    message = messages.dispatch(attempts, worker_id=gone.pk)
    listed = read(message.body(), message.headers() | {"x-death": [death(gone.pk)]})

    assert settle(listed) == Drained(settled=2, returned=1, stale=2)

    assert [reread(row).reason for row in (dead, other)] == ["queue_ttl_expired"] * 2
    assert [reread(row).status for row in (claimed, later)] == ["running", "scheduled"]
    assert reread(busy).status == "requested"
    entries = DLQEntry.objects.order_by("pk")
    assert [entry.subject_id for entry in entries] == [dead.pk, other.pk]
    assert [entry.fingerprint for entry in entries] == [f"{dead.pk}.1", f"{other.pk}.1"]
    assert settle(listed) == Drained(stale=5), "drained twice"


# --- odd letters -------------------------------------------------------------------------------

UNREADABLE: dict[str, tuple[Any, dict[str, Any] | None]] = {
    "no JSON": (b"\x00\xff not JSON", None),
    "empty": (b"", None),
    "no task message": (b'{"a": 1}', None),
    "no headers": (b'[[], {"execution_id": "x"}, {}]', {}),
    "no id": (b"[[], {}, {}]", None),
    "odd id": (b'[[], {"execution_id": "x", "attempt": 1}, {}]', None),
    "odd attempt": (json.dumps([[], {"execution_id": str(UUID(int=1)), "attempt": []}, {}]), None),
    "another task": (b"[[], {}, {}]", {"task": "muster.schedule"}),
    "kwargs is a list": (b"[[], [], {}]", None),
    "x-death is text": (b"{}", {"task": "muster.run", "x-death": "gone"}),
    "x-death of texts": (b"{}", {"task": "muster.run", "x-death": ["gone", {"queue": 7}]}),
    "odd headers": (
        b"{}",
        {"task": "muster.run", "b": b"\xff\x00", "f": float("nan"), "s": "\ud800", "n\x00": "\x00"},
    ),
    "enormous number": (b"[[], {}, " + b"9" * 5_000 + b"]", None),
}


@pytest.mark.parametrize(("body", "headers"), UNREADABLE.values(), ids=UNREADABLE)
def test_unreadable_letter_is_kept_with_its_bytes(
    body: bytes | str, headers: dict[str, Any] | None
) -> None:
    assert settle(read(body, headers)) == Drained(unreadable=1)
    entry = DLQEntry.objects.get()
    assert entry.dlq_reason == "message_invalid"
    assert entry.raw_body is not None
    assert bytes(entry.raw_body) == (body.encode() if isinstance(body, str) else body)
    assert entry.detail
    assert (entry.subject_id, entry.attempt) == (None, None)


def test_unreadable_letter_twice_makes_one_entry() -> None:
    odd = read(b"\x00\xff")
    settle(odd, odd)
    settle(odd)
    assert DLQEntry.objects.count() == 1


def test_identical_unreadable_letters_share_an_entry_that_counts_them() -> None:
    def copy(number: int) -> Letter:
        died = death() | {"time": NOW + timedelta(seconds=number), "count": number}
        headers = {"task": "x", "x-death": [died], "x-first-death-queue": f"q{number}"}
        return read(b"\x00\xff", headers)

    assert settle(*(copy(number) for number in range(5))) == Drained(unreadable=5)
    later = NOW + timedelta(minutes=1)
    settle(*(copy(number) for number in range(5, 7)), now=later)
    entry = DLQEntry.objects.get()
    assert (entry.occurrences, entry.dlq_timestamp, entry.last_seen_at) == (7, NOW, later)
    assert Tally.objects.get(metric="muster_dlq_entries_created_total").value == 1


def test_identical_letters_of_several_queues_are_an_entry_for_each_queue() -> None:
    died_in = ["worker.2.executions", "worker.3.executions", "worker.3.executions"]
    letters = [
        read(b"\x00\xff", {"x-death": [death() | {"queue": queue}], "id": "1"}) for queue in died_in
    ]
    settle(*letters)
    entries = DLQEntry.objects.order_by("original_queue")
    assert [entry.about for entry in entries] == [
        "a letter from worker.2.executions",
        "2 identical letters from worker.3.executions",
    ]


def test_entry_says_in_words_what_its_letter_lacks() -> None:
    for body, headers, why in (
        (b"[[], {}, {}]", {"lang": "py"}, "the message has no header task"),
        (b"\x00", {"task": "muster.run"}, "its body is not JSON: Expecting value: line 1"),
        (b"[[], {}, {}]", {"task": "muster.run"}, "it has no argument execution_id"),
    ):
        assert read(body, headers).problem.startswith(f"not a task message of ours: {why}")


def test_letter_like_one_of_a_closed_entry_opens_another() -> None:
    odd = read(b"\x00\xff")
    settle(odd)
    closed = DLQEntry.objects.get()
    DLQEntry.objects.filter(pk=closed.pk).update(
        resolution_status="manually_resolved", resolved_at=NOW, resolved_by="ada"
    )
    settle(odd, odd)
    first, second = DLQEntry.objects.order_by("pk")
    assert (first.resolution_status, first.occurrences) == ("manually_resolved", 1)
    assert (second.resolution_status, second.occurrences) == ("pending", 2)


def test_thousand_identical_letters_cost_as_few_statements_as_two(
    django_assert_max_num_queries: Any,
) -> None:
    odd = read(b"\x00\xff")
    with django_assert_max_num_queries(20) as few:
        settle(odd, odd)
    with django_assert_max_num_queries(len(few)):
        settle(*[odd] * 1_000)
    assert DLQEntry.objects.get().occurrences == 1_002


def test_different_unreadable_letters_make_entries_of_their_own() -> None:
    settle(read(b"one"), read(b"two"), read(b"one", {"x-death": [death()]}))
    assert DLQEntry.objects.count() == 3


def test_odd_letters_stop_no_other() -> None:
    worker = make_worker(status="inactive")
    rows = [unclaimed(worker=worker) for _ in range(3)]
    odd = [read(*each) for each in UNREADABLE.values()]
    drained = settle(letter(rows[0]), *odd[:4], letter(rows[1]), *odd[4:], letter(rows[2]))
    assert drained == Drained(settled=3, unreadable=len(odd))
    assert {reread(row).status for row in rows} == {"failed"}


def test_letter_that_the_database_cannot_store_is_kept_by_its_bytes_alone(
    database: str,
) -> None:
    """Its headers were made storable; this one got past that, and only PostgreSQL minds."""
    nul = Letter(
        raw_body=b"\x00",
        headers={"note": "\x00"},
        x_death=[],
        task="",
        attempts=[],
        problem="NUL",
    )
    execution = unclaimed()
    assert settle(nul, letter(execution)) == Drained(settled=1, unreadable=1)
    entry = DLQEntry.objects.get(dlq_reason="message_invalid")
    assert bytes(entry.raw_body or b"") == b"\x00"
    if database == "postgresql":
        assert entry.headers == {}
    assert reread(execution).is_terminal


# --- from the queue -----------------------------------------------------------------------------


def put(*bodies: bytes, headers: dict[str, Any]) -> None:
    with brokers.connection() as link:
        channel: Any = link.default_channel
        topology.declare(channel, [])
        for body in bodies:
            message = channel.prepare_message(body, headers=headers)
            channel.basic_publish(message, exchange="muster.dlx", routing_key="was.here")


def waiting() -> int:
    with brokers.connection() as link:
        channel: Any = link.default_channel
        declared = channel.queue_declare(topology.dead_letter_queue().name, passive=True)
        return int(declared.message_count)


@pytest.mark.usefixtures("embedded_broker")
def test_drain_settles_what_is_in_the_queue_and_acknowledges_it() -> None:
    execution = unclaimed()
    message = messages.dispatch([execution.key], worker_id=1)
    put(message.body(), message.body(), b"odd", headers=message.headers())
    assert dead_letters.drain(read_clock=lambda: NOW) == Drained(settled=1, stale=1, unreadable=1)
    assert waiting() == 0
    assert dead_letters.drain(read_clock=lambda: NOW) == Drained()


@pytest.mark.usefixtures("embedded_broker")
def test_each_batch_of_a_drain_asks_for_the_time(settings: Any) -> None:
    settings.MUSTER = replace(settings.MUSTER, batch_size=1)  # two letters at once
    action = make_action("core.again", retry_policy=RETRY | {"backoff": "linear", "jitter": 0})
    rows = [unclaimed(action=action) for _ in range(4)]
    for row in rows:
        message = messages.dispatch([row.key], worker_id=1)
        put(message.body(), headers=message.headers())
    times = [NOW, NOW + timedelta(seconds=20)]
    assert dead_letters.drain(read_clock=iter(times).__next__) == Drained(settled=4)
    events = ExecutionEvent.objects.filter(event="retry").order_by("at")
    assert list(events.values_list("at", flat=True)) == [times[0]] * 2 + [times[1]] * 2
    for execution_id, at in events.values_list("execution_id", "at"):
        due_at = Execution.objects.get(pk=execution_id).next_retry_at
        assert due_at == at + timedelta(seconds=1), "a back-off is whole"


@pytest.mark.usefixtures("embedded_broker")
def test_drain_that_cannot_write_leaves_the_letters_where_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(b"one", b"two", headers={})

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError

    with monkeypatch.context() as patch:
        patch.setattr(dead_letters, "settle", fail)
        with pytest.raises(OSError):  # noqa: PT011 - it has no message
            dead_letters.drain(read_clock=lambda: NOW)
    assert waiting() == 2
    assert dead_letters.drain(read_clock=lambda: NOW) == Drained(unreadable=2)


@pytest.mark.usefixtures("embedded_broker")
def test_drain_of_a_queue_that_is_not_there_yet_declares_it() -> None:
    assert dead_letters.drain(read_clock=lambda: NOW) == Drained()
    assert waiting() == 0


def test_letter_nested_too_deep_is_kept_and_does_not_block_the_drain() -> None:
    letter = dead_letters.read(Message(body="[" * 100_000, headers={"task": messages.RUN}))
    assert dead_letters.settle([letter], now=NOW) == Drained(unreadable=1)
