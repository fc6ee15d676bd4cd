"""Deliveries become tickets and executions: once, whatever comes again."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.db import DatabaseError, connection
from django.test.utils import CaptureQueriesContext

from orchestrator.core import investigations
from orchestrator.core.models import DLQEntry, Execution
from orchestrator.core.models.catalog import forget_actions
from orchestrator.queues.gates import headers, intake
from orchestrator.queues.gates.judging import Delivery, Does
from orchestrator.queues.models import Gate, Ticket
from tests.factories import NOW, make_action
from tests.queues.gates import messages
from tests.races import at_once

MakeGate = Callable[..., Gate]


@pytest.fixture(autouse=True)
def fresh_actions() -> None:
    forget_actions()


def delivery(
    body: bytes | None = None,
    *,
    found: dict[str, Any] | None = None,
    redelivered: bool = False,
    **properties: Any,
) -> Delivery:
    body = messages.body() if body is None else body
    return intake.deliver(body, found or {}, properties, redelivered=redelivered)


def take_in(gate: Gate, *deliveries: Delivery, **more: Any) -> list[intake.Taken]:
    return intake.take_in(list(deliveries), gate=gate, holder="e1", now=NOW, **more)


def does(taken: list[intake.Taken]) -> list[Does]:
    return [each.verdict.does for each in taken]


def test_message_becomes_a_ticket_and_an_execution_in_the_lane_of_its_queue(
    make_gate: MakeGate,
) -> None:
    gate = make_gate(queue={"default_priority": 3, "timeout_seconds": 7, "deadline_seconds": 70})
    body = messages.body("doc-7", correlationId="c" * 120)
    [taken] = take_in(gate, delivery(body, found={"x-a": b"\xff"}, user_id="shop"))

    ticket, execution = Ticket.objects.get(), Execution.objects.get()
    assert (taken.ticket_id, taken.execution_id) == (ticket.pk, execution.pk)
    assert (ticket.execution_id, ticket.task_id, ticket.holder) == (execution.pk, "doc-7", "e1")
    assert bytes(ticket.body or b"") == body
    assert ticket.headers == {"x-a": "\ufffd"}
    assert ticket.envelope["correlationId"] == "c" * 120
    assert execution.parameters == {"text": "hello"}
    assert (execution.queue, execution.lane, execution.retry_count) == ("orders", "input", 0)
    assert (execution.priority, execution.timeout_seconds) == (3, 7)
    assert (execution.deadline_at - execution.created_at).total_seconds() == 70
    assert execution.correlation_id == "c" * 100
    assert execution.requested_by == "amqp:shop"
    assert (execution.retry_policy or {})["max_attempts"] == 4


def test_message_with_lost_starts_is_in_the_retry_lane_and_has_fewer_attempts_left(
    make_gate: MakeGate,
) -> None:
    take_in(make_gate(), delivery(found={headers.RETRY: 2}))
    execution = Execution.objects.get()
    assert (execution.lane, execution.retry_count) == ("retry", 2)
    assert Ticket.objects.get().tries == 2


def test_priority_of_the_message_beats_that_of_the_queue(make_gate: MakeGate) -> None:
    take_in(make_gate(queue={"default_priority": 3}), delivery(messages.body(priority=-1)))
    assert Execution.objects.get().priority == -1


def test_gate_that_retries_through_its_queue_gives_an_execution_one_attempt(
    make_gate: MakeGate,
) -> None:
    take_in(make_gate(retry_by="queue"), delivery())
    assert (Execution.objects.get().retry_policy or {})["max_attempts"] == 1


def test_copy_attaches_and_starts_nothing(make_gate: MakeGate) -> None:
    gate = make_gate()
    [first] = take_in(gate, delivery())
    [copy] = take_in(gate, delivery(redelivered=True))
    assert copy.verdict.does is Does.ATTACH
    assert (copy.ticket_id, copy.execution_id) == (first.ticket_id, first.execution_id)
    assert Execution.objects.count() == 1


def test_copies_in_one_batch_attach_to_the_first(make_gate: MakeGate) -> None:
    taken = take_in(make_gate(), delivery(), delivery(), delivery(messages.body("t2")))
    assert does(taken) == [Does.TAKE_IN, Does.ATTACH, Does.TAKE_IN]
    assert taken[0].execution_id == taken[1].execution_id != taken[2].execution_id
    assert Execution.objects.count() == 2


def test_same_task_with_other_data_is_another_execution(make_gate: MakeGate) -> None:
    gate = make_gate()
    take_in(gate, delivery())
    other = messages.body(taskData=messages.encoded({"text": "bye"}))
    assert does(take_in(gate, delivery(other))) == [Does.TAKE_IN]
    assert Execution.objects.count() == 2


def test_copy_of_a_told_message_is_answered_again(make_gate: MakeGate) -> None:
    gate = make_gate()
    [first] = take_in(gate, delivery())
    Ticket.objects.update(told_at=NOW)
    [copy] = take_in(gate, delivery())
    assert (copy.verdict.does, copy.ticket_id) == (Does.ANSWER_AGAIN, first.ticket_id)


def test_task_that_comes_back_from_another_queue_continues_its_ticket(
    make_gate: MakeGate,
) -> None:
    gate = make_gate(retry_by="queue")
    [first] = take_in(gate, delivery())
    Ticket.objects.update(told_at=NOW, moved_at=NOW)
    [second] = take_in(gate, delivery(found={headers.RETRY: 1}))
    assert second.verdict.does is Does.TAKE_IN
    assert Ticket.objects.get(pk=second.ticket_id or 0).continues_id == first.ticket_id
    assert Execution.objects.count() == 2


def lose() -> None:
    """End all executions as lost with their workers."""
    Execution.objects.update(status="abandoned", reason="worker_lost", ended_at=NOW)


def test_message_of_the_retry_queue_that_comes_before_its_telling_is_noted_is_taken_in(
    make_gate: MakeGate,
) -> None:
    """Attached to the ticket that it continues, it would be acknowledged with that, and lost."""
    gate = make_gate(retry_by="queue")
    [first] = take_in(gate, delivery())
    lose()
    counted = delivery(found={headers.RETRY: 1})
    taken = take_in(gate, counted, counted)
    assert does(taken) == [Does.TAKE_IN, Does.ATTACH]
    second = Ticket.objects.get(pk=taken[0].ticket_id or 0)
    assert (second.continues_id, second.tries) == (first.ticket_id, 1)
    before = Ticket.objects.get(pk=first.ticket_id or 0)
    assert (before.moved_at, before.told_at, before.told_to) == (NOW, NOW, gate.retries_go_to)
    # whoever published it has nothing left to note
    assert not Ticket.objects.due(NOW).exists()


@pytest.mark.parametrize("tries", [0, 1])
def test_copy_of_an_open_task_attaches_whatever_it_counts(make_gate: MakeGate, tries: int) -> None:
    gate = make_gate(retry_by="queue")
    [first] = take_in(gate, delivery())
    if not tries:
        lose()
    [copy] = take_in(gate, delivery(found={headers.RETRY: tries}))
    assert (copy.verdict.does, copy.ticket_id) == (Does.ATTACH, first.ticket_id)


def test_counted_copy_attaches_where_muster_itself_retries(make_gate: MakeGate) -> None:
    gate = make_gate()
    [first] = take_in(gate, delivery())
    lose()
    [copy] = take_in(gate, delivery(found={headers.RETRY: 1}))
    assert (copy.verdict.does, copy.ticket_id) == (Does.ATTACH, first.ticket_id)


def test_refused_message_has_a_ticket_without_an_execution_and_its_bytes_are_kept(
    make_gate: MakeGate,
) -> None:
    [taken] = take_in(make_gate(), delivery(b"garbage"))
    ticket = Ticket.objects.get()
    assert (taken.ticket_id, taken.execution_id, ticket.execution_id) == (ticket.pk, None, None)
    assert (ticket.refusal or {})["rejected"] == headers.INVALID
    entry = DLQEntry.objects.get()
    assert (entry.dlq_reason, bytes(entry.raw_body or b"")) == ("message_invalid", b"garbage")
    assert not Execution.objects.exists()


@pytest.mark.parametrize(
    ("rejected_queue", "kept_as"), [("", ["retries_exceeded"]), ("orders.rejected", [])]
)
def test_message_beyond_its_retries_is_kept_where_no_rejected_queue_has_it(
    make_gate: MakeGate, rejected_queue: str, kept_as: list[str]
) -> None:
    """Its ticket alone is pruned after a day."""
    gate = make_gate(rejected_queue=rejected_queue, output_queue="")
    poison = delivery(found={headers.RETRY: 4})
    [taken] = take_in(gate, poison)
    assert (taken.verdict.does, taken.verdict.rejected) == (Does.REFUSE, headers.EXCEEDED)

    entries = list(DLQEntry.objects.all())
    assert [entry.dlq_reason for entry in entries] == kept_as
    for entry in entries:
        assert bytes(entry.raw_body or b"") == poison.body
        assert (entry.original_queue, entry.headers) == ("orders.in", {headers.RETRY: 4})
        assert "4 starts were lost, and the limit is 3 retries" in entry.detail


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"taskClassifier": "Other"}, "/taskClassifier: no action takes 'Other'"),
        ({"taskData": messages.encoded([1])}, "/taskData: expected a JSON object"),
        ({"taskData": messages.encoded(b"\xff")}, "/taskData: is not UTF-8"),
        ({"taskData": messages.encoded({"text": "a\0"})}, "/taskData/text: contains a NUL"),
        ({"taskData": messages.encoded({"text": 3})}, "/taskData/text: "),
    ],
)
def test_what_no_action_takes_is_refused_with_its_place(
    make_gate: MakeGate, changed: dict[str, Any], text: str
) -> None:
    make_action(parameters_schema={"properties": {"text": {"type": "string"}}}, idempotent=True)
    [taken] = take_in(make_gate(), delivery(messages.body(**changed)))
    assert str(taken.verdict.problems[0]).startswith(text)


def test_version_that_is_not_listed_is_refused(make_gate: MakeGate) -> None:
    gate = make_gate(classifiers={"Echo": {"action": make_action().ref, "versions": [2, 3]}})
    [taken] = take_in(gate, delivery())
    text = "/taskApiVersion: expected one of the versions 2, 3, found 1"
    assert str(taken.verdict.problems[0]) == text


def test_unlisted_classifier_runs_the_action_of_the_queue(make_gate: MakeGate) -> None:
    gate = make_gate(classifiers={}, queue={"action": make_action()})
    assert does(take_in(gate, delivery(messages.body(taskClassifier="?")))) == [Does.TAKE_IN]


def test_message_for_an_action_that_no_worker_runs_is_refused(make_gate: MakeGate) -> None:
    """Its pack has changed since the gate was made."""
    held = make_action("core.ask", runtime="inquiry")
    gate = make_gate(classifiers={"Echo": {"action": held.ref}})
    [taken] = take_in(gate, delivery())
    assert (taken.verdict.does, taken.verdict.rejected) == (Does.REFUSE, headers.INVALID)
    assert "no worker runs core.ask" in str(taken.verdict.problems[0])


def test_one_bad_message_does_not_spoil_a_batch(make_gate: MakeGate) -> None:
    taken = take_in(make_gate(), delivery(), delivery(b"?"), delivery(messages.body("t2")))
    assert does(taken) == [Does.TAKE_IN, Does.REFUSE, Does.TAKE_IN]


def test_same_garbage_twice_is_answered_twice(make_gate: MakeGate) -> None:
    gate = make_gate()
    taken = take_in(gate, delivery(b"?"), delivery(b"?"))
    assert does(taken) == [Does.REFUSE, Does.REFUSE]
    assert taken[0].ticket_id != taken[1].ticket_id
    Ticket.objects.update(told_at=NOW)
    assert does(take_in(gate, delivery(b"?"))) == [Does.REFUSE]


def test_same_garbage_twice_in_each_of_two_batches_is_answered_each_time(
    make_gate: MakeGate,
) -> None:
    gate = make_gate()
    for _ in range(2):
        assert does(take_in(gate, delivery(b"?"), delivery(b"?"))) == [Does.REFUSE] * 2
        Ticket.objects.update(told_at=NOW)
    assert Ticket.objects.count() == 4
    assert DLQEntry.objects.get().occurrences == 4


def test_redelivered_garbage_is_the_refusal_that_it_was(make_gate: MakeGate) -> None:
    gate = make_gate()
    [first] = take_in(gate, delivery(b"?"))
    [again] = take_in(gate, delivery(b"?", redelivered=True))
    assert (again.verdict.does, again.ticket_id) == (Does.ATTACH, first.ticket_id)
    Ticket.objects.update(told_at=NOW)
    [again] = take_in(gate, delivery(b"?", redelivered=True))
    assert (again.verdict.does, again.ticket_id) == (Does.ANSWER_AGAIN, first.ticket_id)


@pytest.mark.parametrize("is_told", [False, True])
def test_copies_of_a_refused_message_in_the_retry_queue_are_one_refusal(
    make_gate: MakeGate, is_told: bool
) -> None:
    """Its keeper died between the publish to the retry queue and the acknowledgement."""
    gate = make_gate()
    body = messages.body(taskClassifier="Other")
    copy = delivery(body, found={headers.RETRY: 1})
    [first] = take_in(gate, copy)
    if is_told:
        Ticket.objects.update(told_at=NOW)
    [again] = take_in(gate, copy)
    assert again.verdict.does is (Does.ANSWER_AGAIN if is_told else Does.ATTACH)
    assert again.ticket_id == first.ticket_id


def test_copies_of_a_refused_message_in_one_batch_of_the_retry_queue_are_one_refusal(
    make_gate: MakeGate,
) -> None:
    copy = delivery(messages.body(taskClassifier="Other"), found={headers.RETRY: 1})
    taken = take_in(make_gate(), copy, copy)
    assert does(taken) == [Does.REFUSE, Does.ATTACH]
    assert {each.ticket_id for each in taken} == {Ticket.objects.get().pk}


def test_refused_message_is_taken_in_once_its_gate_knows_its_classifier(
    make_gate: MakeGate,
) -> None:
    gate = make_gate()
    body = messages.body(taskClassifier="New")
    assert does(take_in(gate, delivery(body))) == [Does.REFUSE]
    gate.classifiers = {"New": {"action": make_action().ref}}
    assert does(take_in(gate, delivery(body))) == [Does.TAKE_IN]


def test_message_that_cannot_be_forwarded_is_refused(make_gate: MakeGate) -> None:
    gate = make_gate(divert="forward", forward_to=["bills"])
    of = delivery(messages.body(to="bills"))
    assert does(take_in(gate, of)) == [Does.FORWARD]
    [taken] = take_in(gate, of, undeliverable="bills: no queue for it")
    assert (taken.verdict.does, taken.verdict.rejected) == (Does.REFUSE, headers.INVALID)
    assert str(taken.verdict.problems[0]) == "/to: bills: no queue for it"


def test_batch_that_fails_writes_nothing(
    make_gate: MakeGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(entries: object) -> None:
        raise DatabaseError

    gate = make_gate()
    monkeypatch.setattr(investigations, "keep", fail)
    with pytest.raises(DatabaseError):
        take_in(gate, delivery(), delivery(b"?"))
    assert not Ticket.objects.exists()
    assert not Execution.objects.exists()


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_keepers_that_take_in_the_same_message_at_once_start_it_once(make_gate: MakeGate) -> None:
    """SQLite has one writer at a time."""
    gate = make_gate()
    bodies = [delivery(messages.body(f"t{n}")) for n in range(10)]
    batches = [bodies, list(reversed(bodies))]
    taken = at_once(*(partial(take_in, gate, *batch) for batch in batches))
    assert Execution.objects.count() == Ticket.objects.count() == 10
    assert sorted(str(each) for batch in taken for each in does(batch)) == sorted(
        ["Does.ATTACH"] * 10 + ["Does.TAKE_IN"] * 10
    )


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_look_at_earlier_tickets_reads_few_of_many(make_gate: MakeGate) -> None:
    """Each half of its condition has an index of its own, which is used."""
    gate = make_gate()
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO queues_ticket (gate_id, task_id, digest, tries, headers, properties,
                envelope, refusal, moved_at, holder, job_status, told_to, tell_tries, last_error,
                created_at)
            SELECT %s, 't' || n, md5(n::text), 0, '{}', '{}', '{}', '{}',
                CASE WHEN n %% 10 = 0 THEN %s END, '', '', '', 0, '', %s
            FROM generate_series(1, 20000) AS n
            """,
            [gate.pk, NOW, NOW],
        )
        cursor.execute("ANALYZE queues_ticket")
    with CaptureQueriesContext(connection) as queries:
        take_in(gate, *(delivery(messages.body(f"t{n}")) for n in range(100, 140)))
    look = next(each["sql"] for each in queries if "ticket" in each["sql"])
    assert look.startswith("SELECT")
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE) {look}")
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "Seq Scan" not in plan
    assert "ticket_of_task_is_unique" in plan
    assert "ticket_moved" in plan
    read = [int(rows) for rows in re.findall(r"Index Scan .*?rows=(\d+)(?:\.\d+)? loops", plan)]
    assert len(read) == 2, plan
    assert sum(read) <= 80, plan
