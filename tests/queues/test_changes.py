"""Queues are applied, paused, resumed and retired, and each change says by whom and why."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from orchestrator.core.authority import PermissionMissing, Principal
from orchestrator.core.models import Pack
from orchestrator.queues import changes, definitions
from orchestrator.queues.changes import Applied
from orchestrator.queues.models import Gate, QueueEvent, Ticket, WorkQueue
from tests.factories import NOW, make_action, make_execution
from tests.principals import given, principal
from tests.queues.play import make_queue, waiting
from tests.races import at_once

pytestmark = pytest.mark.usefixtures("database", "sent")

GATE = {"input_queue": "orders-in"}


def apply(
    name: str = "orders",
    revision: int | None = None,
    principal: Principal | None = None,
    **values: Any,
) -> Applied:
    new = definitions.new_queue(values, name=name)
    return changes.apply(new, actor="ann", now=NOW, revision=revision, principal=principal)


def foreseen(principal: Principal, **values: Any) -> Applied:
    return changes.differences(definitions.new_queue(values, name="orders"), principal=principal)


def kinds(name: str = "orders") -> list[str]:
    return [event.kind for event in QueueEvent.objects.filter(queue__name=name).order_by("pk")]


def test_same_definition_again_changes_nothing() -> None:
    make_action(idempotent=True)
    for outcome in ("created", "unchanged", "unchanged"):
        assert apply(priority=3, action="core.echo", gate=GATE).outcome == outcome
    assert changes.find("orders").revision == 1
    assert kinds() == ["created"]


def test_change_grows_the_revision_and_names_what_differs() -> None:
    apply(max_running=3, gate=GATE)
    applied = apply(max_running=4, gate=GATE | {"input_queue": "new-in", "codec": "text"})
    keys = {each.key: (each.before, each.after) for each in applied.differences}
    assert keys == {
        "max_running": (3, 4),
        "gate.input_queue": ("orders-in", "new-in"),
        "gate.codec": ("json", "text"),
    }
    needing = [each.key for each in applied.differences if each.needs]
    assert needing == ["gate.input_queue"]
    assert changes.find("orders").revision == 2
    [event] = QueueEvent.objects.filter(kind="changed")
    assert "max_running" in event.reason


def test_left_out_gate_is_removed_unless_it_owes_answers() -> None:
    apply(gate=GATE)
    assert [each.key for each in apply().differences] == ["retry_limit", "gate"]
    assert not Gate.objects.exists()
    apply(gate=GATE)
    Ticket.objects.create(
        gate=Gate.objects.get(), task_id="t", digest="0" * 64, refusal={"why": "x"}, created_at=NOW
    )
    with pytest.raises(changes.InvalidQueue, match="tickets"):
        apply()


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"action": "no.such"}, "no action is called 'no.such'"),
        ({"gate": {"input_queue": "mail-in"}}, "of the queue mail"),
        ({"gate": {"input_queue": "x", "retry_queue": "mail-in"}}, "of the queue mail"),
        ({"gate": GATE | {"classifiers": {"c": {"action": "no.such"}}}}, "no action is called"),
        ({"action": "core.echo", "gate": GATE}, "gate.once: expected true"),
        ({"action": "core.ask"}, "action: expected an action that workers run, found 'core.ask'"),
        (
            {"gate": GATE | {"once": True, "classifiers": {"c": {"action": "core.ask"}}}},
            "gate.classifiers.c.action: expected an action that workers run, found 'core.ask'",
        ),
    ],
)
def test_definition_that_does_not_fit_other_rows_is_refused(
    values: dict[str, Any], why: str
) -> None:
    make_action()
    make_action("core.ask", runtime="inquiry")
    make_queue("mail", gate={"input_queue": "mail-in"})
    with pytest.raises(changes.InvalidQueue, match=why):
        apply(**values)
    assert not WorkQueue.objects.filter(name="orders").exists()


# --- who may let a gate run what -----------------------------------------------------------------


SHELL = {"input_queue": "orders-in", "once": True, "classifiers": {"run": {"action": "core.shell"}}}
SAFE = SHELL | {"classifiers": {"run": {"action": "core.echo"}}}
OPERATOR = principal(given("operator"))
MAY_SHELL = principal(given("operator"), given("actions.run_any_command", packs=["core"]))


@pytest.fixture
def shell(database: str) -> None:
    make_action()
    make_action("core.shell", dangerous=True)


@pytest.mark.parametrize(
    "values",
    [
        {"gate": SHELL},
        {"gate": SHELL | {"classifiers": {"*": {"action": "core.shell"}}}},
        {"gate": SAFE, "action": "core.shell"},
        {"gate": SAFE | {"classifiers": {}}, "action": "core.shell"},
    ],
)
@pytest.mark.usefixtures("shell")
def test_who_makes_or_changes_a_gate_must_be_permitted_to_run_what_it_runs(
    values: dict[str, Any],
) -> None:
    """Its executions are requested by nobody whom Muster knows."""
    for is_there in (False, True):
        assert WorkQueue.objects.exists() is is_there
        for call in (apply, foreseen):
            with pytest.raises(PermissionMissing, match=r"dangerous action core\.shell needs"):
                call(principal=OPERATOR, **values)
        apply(gate=SAFE, principal=OPERATOR)
    assert changes.find("orders").revision == 1
    assert foreseen(principal=MAY_SHELL, **values).outcome == "updated"
    assert apply(principal=MAY_SHELL, **values).outcome == "updated"


@pytest.mark.usefixtures("shell")
def test_action_of_a_gate_out_of_reach_is_refused_by_its_name() -> None:
    elsewhere = principal(given("queues.change"), given("executions.run", packs=["shop"]))
    why = "core.echo, which the gate of the queue orders runs, needs the permission executions.run"
    with pytest.raises(PermissionMissing, match=why):
        apply(gate=SAFE, principal=elsewhere)
    assert apply(action="core.shell", principal=elsewhere).outcome == "created"  # it has no gate


@pytest.mark.usefixtures("shell")
def test_who_leaves_a_gate_as_it_is_needs_no_permission_for_its_actions() -> None:
    apply(gate=SHELL, max_running=2)
    assert apply(gate=SHELL, max_running=2, principal=OPERATOR).outcome == "unchanged"
    assert apply(gate=SHELL, max_running=3, principal=OPERATOR).outcome == "updated"
    with pytest.raises(PermissionMissing):
        apply(gate=SHELL | {"trusted_users": ["eve"]}, max_running=3, principal=OPERATOR)
    changes.retire("orders", reason="over", actor="ann", now=NOW)
    with pytest.raises(PermissionMissing):
        apply(gate=SHELL, max_running=3, principal=OPERATOR)
    assert apply(principal=OPERATOR).outcome == "updated"  # without the gate
    assert not Gate.objects.exists()


def test_revision_that_somebody_else_has_changed_is_refused() -> None:
    apply(revision=0)
    with pytest.raises(changes.RevisionDiffers, match="exists already"):
        apply(revision=0)
    apply(revision=1, priority=1)
    with pytest.raises(changes.RevisionDiffers, match="at revision 2, not 1"):
        apply(revision=1, priority=2)


def test_one_of_many_that_change_a_revision_wins() -> None:
    apply()
    calls = [partial(apply, revision=1, priority=number) for number in range(1, 7)]
    outcomes = at_once(*calls)
    won = [each for each in outcomes if isinstance(each, Applied)]
    assert len(won) == 1, outcomes
    assert changes.find("orders").revision == 2


def test_pause_and_resumption_say_by_whom_and_why_and_an_apply_keeps_a_pause() -> None:
    make_queue()
    changes.pause("orders", reason="the shop is down", actor="ann", now=NOW)
    changes.pause("orders", reason="the shop is down", actor="bob", now=NOW)
    make_queue(priority=2)
    queue = changes.find("orders")
    assert (queue.state, queue.pause_reason, queue.paused_by) == (
        "paused", "the shop is down", "ann",
    )  # fmt: skip
    changes.resume("orders", reason="up", actor="bob", now=NOW)
    changes.resume("orders", reason="up", actor="bob", now=NOW)
    assert changes.find("orders").state == "open"
    assert kinds() == ["created", "paused", "changed", "resumed"]


def test_queue_with_open_work_is_closed_and_retired_only_when_it_is_empty() -> None:
    make_queue()
    [execution] = waiting()
    with pytest.raises(changes.QueueHoldsWork, match="open executions"):
        changes.retire("orders", reason="over", actor="ann", now=NOW)
    assert changes.find("orders").state == "closed"
    type(execution).objects.filter(pk=execution.pk).update(
        status="cancelled", reason="cancelled", ended_at=NOW
    )
    for _ in range(2):
        changes.retire("orders", reason="over", actor="ann", now=NOW)
    assert changes.find("orders").state == "retired"
    with pytest.raises(changes.QueueIsRetired):
        changes.pause("orders", reason="x", actor="ann", now=NOW)
    make_queue()
    assert changes.find("orders").state == "open"
    make_execution("completed", queue="orders", lane="input")


def test_queue_of_a_pack_is_changed_by_that_alone() -> None:
    make_action()
    pack = Pack.objects.get(name="core")
    new = definitions.new_queue({"name": "orders"})
    changes.apply(new, actor="pack", now=NOW, pack=pack)
    with pytest.raises(changes.QueueOfPack):
        apply(priority=1)


def test_history_of_a_queue_is_final() -> None:
    make_queue()
    for change in (
        lambda: QueueEvent.objects.update(reason="x"),
        lambda: QueueEvent.objects.all().delete(),
    ):
        with pytest.raises(IntegrityError), transaction.atomic():
            change()
    assert connection.vendor in ("sqlite", "postgresql")
