"""Answers are told once the broker has confirmed them, and until then again."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from orchestrator.core import publisher
from orchestrator.core.models import Execution
from orchestrator.core.models.catalog import forget_actions
from orchestrator.core.states import ExecutionStatus
from orchestrator.queues.gates import headers, intake, metrics, telling
from orchestrator.queues.models import Gate, Ticket
from tests.factories import NOW, make_worker
from tests.garbage import alive, uncollected
from tests.queues.gates import messages
from tests.queues.gates.conftest import Sent

MakeGate = Callable[..., Gate]
LATER = NOW + timedelta(seconds=3)


@pytest.fixture(autouse=True)
def fresh_actions() -> None:
    forget_actions()


def ticket_of(
    gate: Gate, status: str = "completed", reason: str = "succeeded", **more: Any
) -> Ticket:
    """A ticket whose execution has ended."""
    body = more.pop("body", messages.body(more.pop("task_id", "t1")))
    delivery = intake.deliver(body, more.pop("found", {}), {}, redelivered=False)
    [taken] = intake.take_in([delivery], gate=gate, holder="e1", now=NOW)
    Execution.objects.filter(ticket=taken.ticket_id).update(
        status=ExecutionStatus(status),
        reason=reason,
        ended_at=NOW,
        started_at=NOW,
        attempt=1,
        worker=make_worker(),
        result={"text": "hello"},
    )
    return Ticket.objects.get(pk=taken.ticket_id or 0)


def tell(gate: Gate, now: Any = LATER) -> telling.Outcome:
    due = telling.claim_due([gate.queue_id], now=now, limit=100)
    return telling.tell(due, gates={gate.queue_id: gate}, now=now)


def test_answer_is_sent_and_noted(make_gate: MakeGate, sent: Sent) -> None:
    gate = make_gate()
    ticket = ticket_of(gate)
    assert tell(gate).told == {ticket.pk}
    [message] = sent
    assert (message.routing_key, message.mandatory) == ("orders.out", True)
    told = Ticket.objects.get()
    assert (told.told_at, told.told_to, told.body) == (LATER, "orders.out", None)
    assert tell(gate, LATER + timedelta(minutes=1)).told == frozenset()


def test_nothing_of_a_ticket_stays_in_memory(make_gate: MakeGate, sent: Sent) -> None:
    gate = make_gate()
    with uncollected():
        before = alive(Ticket), alive(Execution)
        heard = [ticket_of(gate).execution_id]
        ticket_of(gate, task_id="t2")
        due = telling.of_executions(heard, now=LATER)  # type: ignore[arg-type]
        telling.tell(due, gates={gate.queue_id: gate}, now=LATER)
        del due
        assert tell(gate).told
        assert (alive(Ticket), alive(Execution)) == before


def test_open_execution_is_not_due(make_gate: MakeGate, sent: Sent) -> None:
    gate = make_gate()
    delivery = intake.deliver(messages.body(), {}, {}, redelivered=False)
    intake.take_in([delivery], gate=gate, holder="e1", now=NOW)
    assert tell(gate) == telling.Outcome()
    assert not sent


def test_holder_is_left_two_seconds_to_tell_what_it_hears_of(make_gate: MakeGate) -> None:
    gate = make_gate()
    ticket = ticket_of(gate)
    soon = NOW + timedelta(seconds=1)
    assert telling.claim_due([gate.queue_id], now=soon, limit=10) == []
    assert telling.of_executions([ticket.execution_id], now=soon) == [ticket]  # type: ignore[list-item]


def test_ticket_that_one_keeper_sweeps_is_no_others_for_a_while(make_gate: MakeGate) -> None:
    gate = make_gate()
    ticket = ticket_of(gate)
    assert telling.claim_due([gate.queue_id], now=LATER, limit=10) == [ticket]
    assert telling.claim_due([gate.queue_id], now=LATER, limit=10) == []
    later = LATER + telling.LEASE
    assert telling.claim_due([gate.queue_id], now=later, limit=10) == [ticket]


def test_missing_output_queue_leaves_the_ticket_untold_with_the_reason(
    make_gate: MakeGate, sent: Sent
) -> None:
    gate = make_gate()
    ticket_of(gate)
    sent.gone = {"orders.out"}
    assert tell(gate).told == frozenset()
    untold = Ticket.objects.get()
    assert (untold.told_at, untold.tell_tries) == (None, 1)
    assert untold.last_error == "orders.out: no queue for it"
    assert untold.next_tell_at == LATER + timedelta(seconds=1)
    assert bytes(untold.body or b"")
    sent.gone.clear()
    assert tell(gate, LATER + timedelta(seconds=1)).told == {untold.pk}
    assert Ticket.objects.get().last_error == ""


def test_pauses_between_tries_double_to_half_a_minute(make_gate: MakeGate, sent: Sent) -> None:
    gate = make_gate()
    ticket_of(gate)
    sent.error = publisher.BrokerUnavailable("away")
    now, pauses = LATER, []
    for _ in range(7):
        tell(gate, now)
        due_at = Ticket.objects.get().next_tell_at
        assert due_at is not None
        pauses.append((due_at - now).total_seconds())
        now = due_at
    assert pauses == [1, 2, 4, 8, 16, 30, 30]


def test_copy_for_the_rejected_queue_follows_the_answer_and_is_not_repeated_before_it(
    make_gate: MakeGate, sent: Sent
) -> None:
    gate = make_gate()
    intake.take_in(
        [intake.deliver(b"garbage", {}, {}, redelivered=False)], gate=gate, holder="", now=NOW
    )
    sent.gone = {"orders.out"}
    tell(gate)
    assert not sent
    sent.gone = {"orders.rejected"}
    tell(gate, LATER + timedelta(minutes=1))
    assert [message.routing_key for message in sent] == ["orders.out"]
    assert Ticket.objects.get().told_at is None
    sent.gone.clear()
    tell(gate, LATER + timedelta(minutes=2))
    assert [message.routing_key for message in sent] == ["orders.out", "orders.rejected"]
    told = Ticket.objects.get()
    assert told.told_at is not None
    assert bytes(told.body or b"") == b"garbage"


def test_second_answer_has_the_id_of_the_first(make_gate: MakeGate, sent: Sent) -> None:
    gate = make_gate()
    ticket = ticket_of(gate)
    tell(gate)
    assert telling.tell_again([ticket.pk], gates={gate.queue_id: gate}) == {ticket.pk}
    first, second = sent
    assert first == second
    sent.gone = {"orders.out"}
    assert telling.tell_again([ticket.pk], gates={gate.queue_id: gate}) == set()
    removed = ticket.pk + 1
    assert telling.tell_again([ticket.pk, removed], gates={gate.queue_id: gate}) == {removed}


def test_dead_end_is_told_without_a_message(make_gate: MakeGate, sent: Sent) -> None:
    gate = make_gate(output_queue="")
    ticket = ticket_of(gate)
    assert tell(gate).told == {ticket.pk}
    assert not sent
    assert Ticket.objects.get().told_to == ""


def test_lost_attempt_moves_to_the_retry_queue_and_its_ticket_with_it(
    make_gate: MakeGate, sent: Sent
) -> None:
    gate = make_gate(retry_by="queue", retry_queue="orders.retry")
    ticket_of(gate, "abandoned", "worker_lost")
    tell(gate)
    [message] = sent
    assert (message.routing_key, message.headers[headers.RETRY]) == ("orders.retry", 1)
    moved = Ticket.objects.get()
    assert (moved.moved_at, moved.told_to) == (LATER, "orders.retry")


def test_report_that_nobody_takes_keeps_no_ticket_open(make_gate: MakeGate, sent: Sent) -> None:
    gate = make_gate()
    tracking = {"jobTaskId": "J1", "trackingPipe": "jobs"}
    ticket_of(gate, body=messages.body(tracking=tracking))
    sent.gone = {"jobs"}
    assert len(tell(gate).told) == 1


def test_many_tickets_are_told_with_few_statements(
    make_gate: MakeGate, sent: Sent, django_assert_max_num_queries: Any
) -> None:
    gate = make_gate()
    for number in range(20):
        ticket_of(gate, task_id=f"t{number}")
    with django_assert_max_num_queries(12):
        assert len(tell(gate).told) == 20
    assert {json.loads(message.body)["taskId"] for message in sent} == {
        f"t{number}" for number in range(20)
    }


def told_seconds() -> tuple[float, float]:
    """How many answers were measured, and their seconds in all."""
    [family] = [each for each in metrics.families(LATER) if each.name == "muster_gate_tell_seconds"]
    values = {sample.name: sample.value for sample in family.samples if "le" not in sample.labels}
    return values["muster_gate_tell_seconds_count"], values["muster_gate_tell_seconds_sum"]


def test_time_from_an_end_to_its_confirmed_answer_is_measured_once(
    make_gate: MakeGate, sent: Sent
) -> None:
    gate = make_gate()
    ticket_of(gate)
    sent.gone.add("orders.out")
    tell(gate)
    assert told_seconds() == (0, 0)
    sent.gone.clear()
    tell(gate, NOW + timedelta(minutes=1))
    count, total = told_seconds()
    assert count == 1
    assert total == pytest.approx(60, abs=5)
    tell(gate, NOW + timedelta(minutes=5))
    assert told_seconds()[0] == 1


def test_answer_whose_copy_fails_is_not_measured_again(make_gate: MakeGate, sent: Sent) -> None:
    gate = make_gate()
    ticket_of(gate, "failed", "worker_lost")
    sent.gone.add("orders.rejected")
    tell(gate)
    sent.gone.clear()
    tell(gate, NOW + timedelta(minutes=5))
    count, total = told_seconds()
    assert count == 1
    assert total == pytest.approx(3, abs=2)


def test_refusals_and_dead_ends_are_not_measured(make_gate: MakeGate) -> None:
    gate = make_gate(output_queue="")
    ticket_of(gate)
    intake.take_in(
        [intake.deliver(b"garbage", {}, {}, redelivered=False)], gate=gate, holder="e1", now=NOW
    )
    tell(gate)
    assert told_seconds() == (0, 0)
