"""What operators and callers see of gates, and may ask of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.test import Client

from orchestrator.access import identities
from orchestrator.core import clock
from orchestrator.core.models import Execution
from orchestrator.core.models.catalog import forget_actions
from orchestrator.queues.gates import depths, intake, metrics, orders
from orchestrator.queues.models import Gate, Keeper, Ticket
from tests import commands, principals
from tests.core.admin.pages import page
from tests.core.api.client import Caller
from tests.factories import NOW, make_action, make_worker, seconds
from tests.principals import given
from tests.queues.gates import messages
from tests.queues.gates.conftest import Sent

MakeGate = Callable[..., Gate]


@pytest.fixture(autouse=True)
def fresh_actions() -> None:
    forget_actions()


def take_in(gate: Gate, *bodies: bytes) -> list[Ticket]:
    deliveries = [intake.deliver(body, {}, {}, redelivered=False) for body in bodies]
    done = intake.take_in(deliveries, gate=gate, holder="e1", now=NOW)
    return [Ticket.objects.get(pk=each.ticket_id or 0) for each in done]


def end_all() -> None:
    Execution.objects.update(
        status="completed", reason="succeeded", ended_at=NOW, attempt=1, worker=make_worker(),
        started_at=NOW, result={"sum": 3},
    )  # fmt: skip


def test_tickets_are_listed_with_their_states(make_gate: MakeGate) -> None:
    gate = make_gate()
    take_in(gate, messages.body("t1"))
    take_in(gate, b"garbage")
    listed = commands.items("queue", "tickets", "orders")
    assert [(each["task_id"], each["state"]) for each in listed] == [("", "due"), ("t1", "open")]
    assert listed[0]["refused"].startswith("TASKMESSAGE_INVALID: is not JSON")
    end_all()
    Ticket.objects.filter(task_id="t1").update(told_at=NOW, told_to="orders.out")
    untold = commands.items("queue", "tickets", "orders", "--untold")
    assert [each["task_id"] for each in untold] == [""]
    assert "t1" in commands.printed("queue", "tickets", "orders")


def test_queue_without_a_gate_has_no_tickets(make_gate: MakeGate) -> None:
    commands.printed("queue", "create", "plain")
    assert "the queue plain has no gate" in commands.refused("queue", "tickets", "plain")


def test_task_message_that_a_command_sends_is_one_that_the_gate_takes(
    make_gate: MakeGate, sent: Sent
) -> None:
    gate = make_gate()
    commands.printed("queue", "send", "orders", "--classifier", "Echo", "--data", '{"text": "x"}')
    [message] = sent
    assert message.routing_key == "orders.in"
    [ticket] = take_in(gate, message.body)
    assert Execution.objects.get(ticket=ticket).parameters == {"text": "x"}


def test_input_queue_that_no_keeper_has_declared_yet_is_declared_for_the_message(
    make_gate: MakeGate, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_gate()
    sent.gone = {"orders.in"}
    monkeypatch.setattr(orders, "_declare", lambda gate: sent.gone.remove(gate.input_queue))
    commands.printed("queue", "send", "orders", "--classifier", "Echo")
    assert [message.routing_key for message in sent] == ["orders.in"]


def test_message_that_no_queue_takes_is_an_error(
    make_gate: MakeGate, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_gate()
    sent.gone = {"orders.in"}
    monkeypatch.setattr(orders, "_declare", lambda gate: None)
    assert "no queue for it" in commands.refused("queue", "send", "orders")


def test_command_sends_nothing_to_a_gate_that_runs_what_its_identity_may_not(
    make_gate: MakeGate, sent: Sent, settings: Any
) -> None:
    shell = make_action("core.shell", dangerous=True)
    make_gate(queue={"action": shell}, classifiers={})
    limited = principals.service("limited", given("operator"))
    settings.MUSTER = replace(settings.MUSTER, command_identity="service:limited")
    assert "dangerous action core.shell needs the permission" in commands.refused(
        "queue", "send", "orders"
    )
    assert sent == []
    may = given("actions.run_any_command")
    identities.grant(limited, may, by=principals.ROOT, now=clock.now())
    commands.printed("queue", "send", "orders")
    assert [message.routing_key for message in sent] == ["orders.in"]


def test_tell_again_makes_due_what_waits_and_what_is_named(make_gate: MakeGate) -> None:
    gate = make_gate()
    first, second = take_in(gate, messages.body("t1"), messages.body("t2"))
    end_all()
    later = NOW + seconds(30)
    Ticket.objects.update(next_tell_at=later)
    Ticket.objects.filter(pk=second.pk).update(told_at=NOW, told_to="orders.out")
    assert orders.tell_again(gate) == 1
    assert Ticket.objects.due(NOW).get().pk == first.pk
    assert orders.tell_again(gate, ids=[second.pk]) == 1
    assert Ticket.objects.due(NOW).count() == 2


def test_task_that_is_on_another_queue_is_not_answered(make_gate: MakeGate) -> None:
    gate = make_gate()
    [ticket] = take_in(gate, messages.body())
    Ticket.objects.update(told_at=NOW, moved_at=NOW)
    with pytest.raises(orders.MovedElsewhere):
        orders.tell_again(gate, ids=[ticket.pk])


def test_policies_are_printed_as_commands(make_gate: MakeGate) -> None:
    make_gate(queue_type="quorum", retry_queue="orders.retry")
    printed = commands.printed("queue", "policies")
    assert printed.startswith(r"rabbitmqctl set_policy orders '^(orders\.in|orders\.retry)$' ")
    assert '"delivery-limit": 13' in printed


def test_metrics_tell_of_answers_that_are_owed(make_gate: MakeGate) -> None:
    gate = make_gate()
    take_in(gate, messages.body("t1"), messages.body("t2"), b"garbage")
    Keeper.objects.create(name="e1", broker="default", seen_at=NOW, held=7)
    families = {each.name: each for each in metrics.families(NOW + seconds(5))}

    def values(name: str) -> dict[str, float]:
        return {
            next(iter(sample.labels.values()), ""): sample.value
            for sample in families[name].samples
        }

    assert values("muster_gate_untold") == {"orders": 1}
    assert values("muster_gate_oldest_untold_seconds") == {"orders": 5}
    assert values("muster_gate_held") == {"default": 7}
    outcomes = values("muster_gate_deliveries")
    assert (outcomes["take_in"], outcomes["refuse"], outcomes["attach"]) == (2, 1, 0)


def test_execution_shows_the_message_that_asked_for_it(make_gate: MakeGate) -> None:
    from orchestrator.queues.shown import tickets

    [ticket] = take_in(make_gate(), messages.body("doc-7"))
    execution = Execution.objects.get(ticket=ticket)
    facts: dict[str, Any] = dict(tickets.of_execution(execution))
    assert facts["Task message"] == "doc-7 (open)"
    assert facts["Came in by"] == "orders.in"


def test_tickets_are_listed_over_the_api_page_by_page(make_gate: MakeGate, caller: Caller) -> None:
    gate = make_gate()
    take_in(gate, messages.body("t1"))
    take_in(gate, b"garbage")
    first = caller.get("/queues/orders/tickets?limit=1").json()
    assert [each["state"] for each in first["items"]] == ["due"]
    rest = caller.get(f"/queues/orders/tickets?limit=1&cursor={first['next_cursor']}").json()
    assert [each["task_id"] for each in rest["items"]] == ["t1"]
    assert rest["next_cursor"] is None
    Ticket.objects.filter(task_id="t1").update(told_at=NOW)
    untold = caller.get("/queues/orders/tickets?untold=true").json()["items"]
    assert [each["task_id"] for each in untold] == [""]
    assert caller.get("/queues/nobody/tickets").status_code == 404


def test_page_of_a_queue_shows_its_gate_and_why_answers_are_owed(
    gate: Gate, admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_in(gate, b"garbage")
    Ticket.objects.update(last_error="orders.out: no queue for it", tell_tries=3)
    Keeper.objects.create(name="e1@host", broker="default", seen_at=clock.now(), held=7)
    found = [depths.Depth("input", "orders.in", 3, 1), depths.Depth("output", "orders.out")]
    monkeypatch.setattr(depths, "asked", lambda gate: found)
    shown = page(admin_client, "admin:queues_workqueue_change", gate.pk)
    for text in ("orders.in", "missing", "e1@host", "orders.out: no queue for it"):
        assert text in shown
    monkeypatch.setattr(depths, "asked", lambda gate: None)
    shown = page(admin_client, "admin:queues_workqueue_change", gate.pk)
    assert "The broker default does not answer" in shown
