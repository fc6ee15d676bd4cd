"""The page of an execution shows the message that asked for it and its answer, without secrets."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from orchestrator.core import authority, clock
from orchestrator.core.models import Execution
from orchestrator.core.models.catalog import forget_actions
from orchestrator.core.shown.executions import Content
from orchestrator.queues.gates import headers, intake, telling
from orchestrator.queues.models import Gate, Ticket
from orchestrator.queues.shown import messages as shown
from tests.core.admin.pages import page
from tests.factories import make_worker
from tests.queues.gates import messages
from tests.queues.gates.conftest import Sent

MakeGate = Callable[..., Gate]
CANARY = "canary-7f3a"


@pytest.fixture(autouse=True)
def fresh_actions() -> None:
    forget_actions()


def came(gate: Gate, body: bytes | None = None, found: Any = None, **properties: Any) -> Execution:
    body = messages.body("doc-7") if body is None else body
    delivery = intake.deliver(body, found or {}, properties, redelivered=False)
    [taken] = intake.take_in([delivery], gate=gate, holder="e1", now=clock.now())
    return Execution.objects.get(ticket=taken.ticket_id or 0)


def end(
    execution: Execution, status: str = "completed", reason: str = "succeeded", **values: Any
) -> None:
    now = clock.now()
    values = {
        "attempt": 1,
        "worker": make_worker(),
        "started_at": now,
        "result": {"sum": 3},
    } | values
    Execution.objects.filter(pk=execution.pk).update(
        status=status, reason=reason, ended_at=now, **values
    )
    execution.refresh_from_db()


def boxes(execution: Execution) -> tuple[Content, Content]:
    message, answer = shown.of_execution(execution, seen_by=authority.at_terminal())
    return message, answer


def test_message_and_the_time_of_its_answer_are_shown_while_it_is_open(make_gate: MakeGate) -> None:
    execution = came(make_gate(), found={headers.RETRY: 2, "x-tenant": "a"}, correlation_id="c-1")
    message, answer = boxes(execution)
    facts: dict[str, Any] = dict(message.facts)
    assert (facts["State"], facts["Queue"], facts["Lost before"]) == ("open", "orders.in", 2)
    assert message.value["headers"] == {headers.RETRY: 2, "x-tenant": "a"}
    assert message.value["properties"] == {"correlation_id": "c-1"}
    assert message.value["message"]["taskId"] == "doc-7"
    assert message.value["message"]["taskData"] == {"text": "hello"}
    assert answer.value is None
    assert dict(answer.facts)["Due"] == "once the execution has ended"


def test_answer_is_shown_before_it_is_told_with_why_it_is_not(make_gate: MakeGate) -> None:
    execution = came(make_gate())
    end(execution)
    Ticket.objects.update(last_error="orders.out: no queue for it", tell_tries=3)
    message, answer = boxes(execution)
    facts: dict[str, Any] = dict(answer.facts)
    assert dict(message.facts)["State"] == "due"
    assert (facts["Why not told"], facts["Failed tries"]) == ("orders.out: no queue for it", 3)
    assert facts["Answer"] == "to orders.out"
    assert answer.value["message"]["taskStatus"] == "RESULT_SUCCESS"
    assert answer.value["message"]["taskData"] == {"sum": 3}
    assert answer.value["headers"]["x-muster-execution-id"] == str(execution.pk)


def test_answer_is_shown_after_it_was_told(make_gate: MakeGate, sent: Sent) -> None:
    gate = make_gate()
    execution = came(gate)
    end(
        execution, "failed", "worker_lost", result={"error": "Worker lost", "message": "w1 is gone"}
    )
    later = clock.now() + timedelta(seconds=3)
    due = telling.claim_due([gate.queue_id], now=later, limit=10)
    telling.tell(due, gates={gate.queue_id: gate}, now=later)
    _, answer = boxes(execution)
    facts: dict[str, Any] = dict(answer.facts)
    assert (facts["To"], facts["Told"].at) == ("orders.out", later)
    assert facts["Copy of what was rejected"] == "to orders.rejected"
    data = answer.value["message"]["taskData"]
    assert data == {"error": "worker_lost", "message": "w1 is gone"}
    assert answer.value["message"]["taskStatus"] == "RESULT_EXCEPTION"


def test_gate_without_an_output_queue_owes_nothing(make_gate: MakeGate) -> None:
    execution = came(make_gate(output_queue=""))
    end(execution)
    assert dict(boxes(execution)[1].facts)["Answer"] == "none is owed"


def test_execution_that_came_by_the_api_has_no_message(database: str) -> None:
    assert shown.of_execution(Execution(), seen_by=authority.at_terminal()) == []


@pytest.mark.parametrize(
    ("status", "result"),
    [
        ("completed", {"password": CANARY}),
        ("failed", {"error": "x", "message": {"password": CANARY}}),
    ],
)
def test_page_shows_both_without_their_secrets(
    status: str, result: Any, gate: Gate, admin_client: Client
) -> None:
    body = messages.body(
        "doc-7",
        taskData=messages.encoded({"text": "hello", "password": CANARY}),
        context={
            "token": messages.encoded(CANARY.encode()),
            "svc": messages.encoded({"api_key": CANARY}),
        },
        tracking={"statusCheckUrl": f"http://shop:{CANARY}@jobs.example/1"},
    )
    found = {"x-authorization": CANARY, "x-tenant": "tenant-a"}
    execution = came(gate, body, found)
    end(execution, status, "succeeded" if status == "completed" else "action_failed", result=result)
    html = page(admin_client, "admin:orchestrator_execution_change", execution.pk)
    for text in ("Task message", "Answer", "doc-7", "tenant-a", "to orders.out", "taskStatus"):
        assert text in html
    assert CANARY not in html
    assert messages.encoded(CANARY.encode()) not in html


def test_who_may_not_read_contents_sees_facts_only(
    make_gate: MakeGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    execution = came(make_gate())
    end(execution)
    monkeypatch.setattr(authority, "may", lambda *_: False)
    message, answer = boxes(execution)
    assert (message.value, answer.value) == ("***", "***")
    assert dict(message.facts)["State"] == "due"
