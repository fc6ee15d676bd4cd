"""Messages that died in a gate's queue are answered once, and start nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.core import brokers, dead_letters, topology
from orchestrator.core.dead_letters import Drained, Letter
from orchestrator.core.messages import dispatch
from orchestrator.core.models import DLQEntry, Execution
from orchestrator.core.models.catalog import forget_actions
from orchestrator.core.states import ExecutionStatus
from orchestrator.queues.gates import headers, intake, letters, telling
from orchestrator.queues.gates.judging import Does
from orchestrator.queues.models import Gate, Ticket
from orchestrator.queues.shown import tickets as shown
from tests.factories import NOW, make_execution, make_worker
from tests.queues.gates import messages
from tests.queues.gates.conftest import Sent

MakeGate = Callable[..., Gate]
LATER = NOW + timedelta(seconds=3)


@pytest.fixture(autouse=True)
def fresh_actions() -> None:
    forget_actions()


def letter(
    body: bytes | None = None,
    reason: str = "expired",
    *,
    queue: str = "orders.in",
    found: dict[str, Any] | None = None,
    redelivered: bool = False,
    broker: str = brokers.DEFAULT,
    **properties: Any,
) -> Letter:
    death = {"count": 1, "reason": reason, "queue": queue, "exchange": "", "routing-keys": [queue]}
    message: Any = SimpleNamespace(
        body=messages.body() if body is None else body,
        headers={**(found or {}), "x-death": [death]},
        properties=properties,
        delivery_info={"redelivered": redelivered},
    )
    return dead_letters.read(message, broker=broker)


def settle(*found: Letter) -> Drained:
    return dead_letters.settle(found, now=NOW)


def tell(gate: Gate) -> None:
    due = telling.claim_due([gate.queue_id], now=LATER, limit=100)
    telling.tell(due, gates={gate.queue_id: gate}, now=LATER)


def answer_of(sent: Sent) -> dict[str, Any]:
    [message] = sent.to("orders.out")
    answer: dict[str, Any] = json.loads(message.body)
    return answer | {"taskData": messages.decoded(answer["taskData"])}


@pytest.mark.parametrize(
    ("reason", "status", "error", "copies"),
    [
        ("expired", "RESULT_EXCEPTION", "expired", 0),
        ("maxlen", "RESULT_EXCEPTION", "maxlen", 0),
        ("rejected", "RESULT_EXCEPTION", "rejected", 0),
        ("delivery_limit", "RESULT_EXCEPTION", "RETRIES_EXCEEDED", 1),
    ],
)
def test_dead_message_is_answered_with_what_it_died_of(
    reason: str, status: str, error: str, copies: int, make_gate: MakeGate, sent: Sent
) -> None:
    gate = make_gate()
    found = letter(reason=reason, found={headers.RETRY: 2}, correlation_id="c-1")

    assert settle(found) == Drained(answered=1)
    tell(gate)

    answer = answer_of(sent)
    assert (answer["taskId"], answer["taskStatus"]) == ("t1", status)
    assert answer["taskData"]["error"] == error
    assert "died in its queue" in answer["taskData"]["message"]
    assert sent.to("orders.out")[0].properties["correlation_id"] == "c-1"
    assert [message.headers[headers.REJECTED] for message in sent.to("orders.rejected")] == [
        "RETRIES_EXCEEDED"
    ] * copies
    assert all("x-death" not in message.headers for message in sent)
    ticket = Ticket.objects.get()
    assert (ticket.tries, ticket.execution_id, ticket.told_at) == (2, None, LATER)
    assert (shown.refused(ticket) or "").startswith(error)
    assert not Execution.objects.exists()
    assert not DLQEntry.objects.exists(), "who sent it has the answer"


@pytest.mark.parametrize(
    ("reason", "kept_as"),
    [
        ("expired", "queue_ttl_expired"),
        ("maxlen", "message_invalid"),
        ("rejected", "message_invalid"),
    ],
)
def test_dead_message_that_nobody_is_told_of_is_kept_with_its_bytes(
    reason: str, kept_as: str, make_gate: MakeGate
) -> None:
    make_gate(output_queue="")
    found = letter(reason=reason)
    assert settle(found) == Drained(answered=1)
    entry = DLQEntry.objects.get()
    assert (entry.dlq_reason, bytes(entry.raw_body or b"")) == (kept_as, found.raw_body)


def test_dead_message_that_cannot_be_read_is_invalid(make_gate: MakeGate, sent: Sent) -> None:
    gate = make_gate()
    assert settle(letter(b"garbage", message_id="m-1")) == Drained(answered=1)
    tell(gate)
    assert (answer_of(sent)["taskId"], answer_of(sent)["taskStatus"]) == ("m-1", "INVALID_TASK")
    assert sent.to("orders.rejected")[0].headers[headers.REJECTED] == "TASKMESSAGE_INVALID"
    assert bytes(DLQEntry.objects.get().raw_body or b"") == b"garbage"


@pytest.mark.parametrize("is_told", [False, True])
@pytest.mark.parametrize("is_redelivered", [False, True])
def test_letter_whose_task_has_an_execution_is_only_acknowledged(
    is_told: bool, is_redelivered: bool, make_gate: MakeGate, sent: Sent
) -> None:
    gate = make_gate()
    delivery = intake.deliver(messages.body(), {}, {}, redelivered=False)
    intake.take_in([delivery], gate=gate, holder="e1", now=NOW)
    Ticket.objects.update(told_at=NOW if is_told else None)

    dead = letter(reason="delivery_limit", redelivered=is_redelivered)
    assert settle(dead) == Drained(answered=1)
    tell(gate)

    assert Ticket.objects.count() == Execution.objects.count() == 1
    assert not sent


@pytest.mark.parametrize("is_told", [False, True])
def test_letter_that_comes_again_after_its_commit_is_answered_once(
    is_told: bool, make_gate: MakeGate, sent: Sent
) -> None:
    gate = make_gate()
    settle(letter())
    if is_told:
        tell(gate)
    settle(letter(redelivered=True))
    tell(gate)
    assert len(sent.to("orders.out")) == 1


def test_message_that_is_sent_again_and_dies_again_is_answered_again(
    make_gate: MakeGate, sent: Sent
) -> None:
    gate = make_gate()
    for _ in range(2):
        settle(letter())
        tell(gate)
    first, second = sent.to("orders.out")
    assert first.properties["message_id"] != second.properties["message_id"]


def test_task_that_died_is_taken_in_when_it_is_sent_again(make_gate: MakeGate) -> None:
    gate = make_gate()
    settle(letter())
    delivery = intake.deliver(messages.body(), {}, {}, redelivered=False)
    [taken] = intake.take_in([delivery], gate=gate, holder="e1", now=NOW)
    assert taken.verdict.does is Does.TAKE_IN


def test_letters_of_a_batch_are_each_answered(make_gate: MakeGate, sent: Sent) -> None:
    gate = make_gate(retry_queue="orders.retry")
    found = [letter(messages.body(f"t{n}")) for n in range(3)]
    found.append(letter(messages.body("t3"), queue="orders.retry"))
    assert settle(*found, letter(b"other", queue="elsewhere")) == Drained(answered=4, unreadable=1)
    tell(gate)
    assert {json.loads(message.body)["taskId"] for message in sent.to("orders.out")} == {
        "t0", "t1", "t2", "t3",
    }  # fmt: skip


@pytest.mark.parametrize(
    "dead",
    [
        letter(queue="orders.out"),
        letter(found={headers.REJECTED: headers.EXCEEDED}),
        letter(broker="gates"),
    ],
    ids=["an answer", "rejected before", "of another broker"],
)
def test_other_letters_stay_dead_letters(dead: Letter, make_gate: MakeGate) -> None:
    make_gate()
    assert settle(dead) == Drained(unreadable=1)
    assert not Ticket.objects.exists()
    assert DLQEntry.objects.count() == 1


def test_foreign_letter_that_looks_like_a_dispatch_ends_nothing(make_gate: MakeGate) -> None:
    make_gate()
    execution = make_execution(ExecutionStatus.SCHEDULED, worker=make_worker(status="inactive"))
    forged = dispatch([execution.key], worker_id=execution.worker_id or 0)
    for broker in (brokers.DEFAULT, "gates"):
        settle(letter(forged.body(), found=forged.headers(), broker=broker))
    execution.refresh_from_db()
    assert execution.status == ExecutionStatus.SCHEDULED


def test_database_that_fails_leaves_the_letters_in_the_broker(
    make_gate: MakeGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_gate()

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError

    with monkeypatch.context() as patch:
        patch.setattr(intake, "take_in", fail)
        with pytest.raises(OSError):  # noqa: PT011 - it has no message
            settle(letter())
    assert settle(letter(redelivered=True)) == Drained(answered=1)


# --- from the queue -----------------------------------------------------------------------------


def let_expire(broker: str = brokers.DEFAULT) -> None:
    """A message that expires in a queue of a foreign client's making."""
    arguments = {"x-dead-letter-exchange": topology.dead_letter_exchange(), "x-message-ttl": 1}
    with brokers.connection(broker) as link:
        channel: Any = link.default_channel
        topology.declare_dead_letters(channel)
        channel.queue_declare("orders.in", durable=True, auto_delete=False, arguments=arguments)
        message = channel.prepare_message(messages.body(), headers={})
        channel.basic_publish(message, exchange="", routing_key="orders.in")


def drained_until_answered(drain: Callable[[], Any]) -> None:
    for _ in range(50):
        drain()
        if Ticket.objects.exists():
            return
    raise AssertionError("no letter came")


@pytest.mark.usefixtures("embedded_broker")
def test_message_that_expires_in_the_broker_is_answered(make_gate: MakeGate, sent: Sent) -> None:
    gate = make_gate()
    let_expire()
    drained_until_answered(lambda: dead_letters.drain(read_clock=lambda: NOW))
    tell(gate)
    assert answer_of(sent)["taskStatus"] == "RESULT_EXCEPTION"


@pytest.mark.usefixtures("embedded_broker")
def test_broker_of_gates_is_drained_and_one_that_is_away_stops_no_other(
    make_gate: MakeGate, settings: Any, tmp_path: Any
) -> None:
    settings.GATE_BROKERS = {
        "away": "amqp://guest:guest@127.0.0.1:1//",
        "gates": f"sqlitemq:///{tmp_path}/gates.sqlite3",
    }
    make_gate(broker="gates")
    make_gate(queue={"name": "lost"}, broker="away")
    make_gate(queue={"name": "unknown"}, broker="nowhere")
    let_expire("gates")
    outcomes: list[Any] = []
    drained_until_answered(lambda: outcomes.append(letters.drain(now=NOW)))
    assert outcomes[-1]["gates"]["answered"] == 1
    assert "away" in outcomes[-1]["away"]["error"]
    assert "MUSTER_GATE_BROKERS" in outcomes[-1]["nowhere"]["error"]
    assert Ticket.objects.get().gate.broker == "gates"


def test_brokers_of_gates_keep_their_letters_where_no_drain_is_wanted(
    make_gate: MakeGate, settings: Any
) -> None:
    settings.MUSTER = replace(settings.MUSTER, dead_letter_enabled=False)
    make_gate(broker="nowhere")
    assert letters.drain(now=NOW) == {}
