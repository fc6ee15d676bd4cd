"""An enforcement ends in one execution, or in the reason why there is none."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError, transaction

from orchestrator.access import identities
from orchestrator.access.authorizer import Identified
from orchestrator.access.models import Identity
from orchestrator.automation import enforcing, owners, parameters
from orchestrator.automation.models import Enforcement, Suppression
from orchestrator.core import executions
from orchestrator.core.executions import NewExecution, RequestRefused
from orchestrator.core.models import Action, Execution
from orchestrator.core.models.catalog import forget_actions
from tests import principals
from tests.automation import play
from tests.factories import NOW, make_action, seconds
from tests.principals import given
from tests.queues.play import make_queue

pytestmark = pytest.mark.django_db

NUMBERS = {"type": "object", "properties": {"text": {"type": "string", "pattern": "^order [0-9]$"}}}


@pytest.fixture(autouse=True)
def fresh_actions() -> None:
    forget_actions()


def owner(name: str, *grants: Any) -> tuple[Identity, Identified]:
    identity = principals.service(name, *grants)
    return identity, owners.principals([identity.pk])[identity.pk]  # type: ignore[return-value]


def test_execution_is_what_the_rule_and_the_event_say() -> None:
    options = {"priority": 7, "timeout_seconds": 30, "worker_selector": {"zone": "b"}}
    play.make_rule(options=options, parameters={"text": "{{ trigger.number }} {{ event.key }}"})
    [row] = play.answer(5, correlation_id="tree")

    assert (row.state, row.reason, row.ended_at) == ("executed", "", NOW)
    execution = Execution.objects.get()
    assert row.execution_id == execution.pk
    assert execution.action_ref == "core.echo"
    assert execution.parameters == {"text": "5 order 5"}
    assert (execution.priority, execution.timeout_seconds) == (7, 30)
    assert execution.worker_selector == {"zone": "b"}
    assert execution.correlation_id == "tree"
    assert execution.requested_by == "rule:shop.ship"
    assert execution.idempotency_key == f"muster:enforcement:{row.pk}"


def test_execution_lands_in_the_queue_that_the_rule_names() -> None:
    make_queue("orders", priority=3)
    play.make_rule(options={"queue": "orders"})
    play.answer(1)
    execution = Execution.objects.get()
    assert (execution.queue, execution.lane, execution.priority) == ("orders", "input", 3)


def test_queue_that_is_not_there_is_a_reason() -> None:
    play.make_rule(options={"queue": "orders"})
    [row] = play.answer(1)
    assert (row.state, row.reason) == ("rejected", "action_refused")
    assert row.problem == {"messages": ["/queue: no queue is called 'orders'"]}


def test_enforcement_that_is_settled_twice_has_one_execution() -> None:
    play.make_rule()
    rows = play.answer(1)
    assert enforcing.enforce([rows[0].pk], now=NOW, actor="executor") == 0
    assert Execution.objects.count() == 1


def test_nobody_takes_the_key_of_an_enforcement_in_advance() -> None:
    make_action()
    new = NewExecution(action_ref="core.echo", idempotency_key="muster:enforcement:1")
    with pytest.raises(RequestRefused, match="those of Muster itself"):
        executions.request(new, requested_by="ada", now=NOW)


def test_parameters_without_a_value_reject_that_enforcement_alone() -> None:
    play.make_rule("shop.broken", parameters={"text": "{{ trigger.absent }}"})
    play.make_rule("shop.fine")
    by_rule = {row.rule.ref: row for row in play.answer(1, 2)}

    assert by_rule["shop.broken"].reason == "parameters_failed"
    assert "text" in str(by_rule["shop.broken"].problem)
    assert by_rule["shop.fine"].state == "executed"
    assert Execution.objects.count() == 2


def test_action_that_refuses_the_parameters_rejects_those_alone() -> None:
    make_action(parameters_schema=NUMBERS)
    play.make_rule()
    rows = play.answer(1, 22, 3)

    assert [row.state for row in rows] == ["executed", "rejected", "executed"]
    assert rows[1].reason == "action_refused"
    assert rows[1].problem is not None
    assert rows[1].problem["messages"][0].startswith("/parameters/text: ")


def test_action_that_was_disabled_since_is_a_reason() -> None:
    play.make_rule()
    Action.objects.update(enabled=False)
    forget_actions()
    [row] = play.answer(1)
    assert (row.state, row.reason) == ("rejected", "action_refused")


# --- owners --------------------------------------------------------------------------------------


def test_rule_runs_its_action_as_its_owner_may_now() -> None:
    identity, principal = owner("author", given("author"))
    play.make_rule(principal=principal)
    [row] = play.answer(1)
    assert row.state == "executed"
    assert Execution.objects.get().key_owner == identity.key_owner

    identity.grants.all().delete()
    [row] = play.answer(2)
    assert (row.state, row.reason) == ("rejected", "action_refused")
    assert Execution.objects.count() == 1


def test_owner_who_is_disabled_is_a_reason_and_nobody_else_runs_it() -> None:
    identity, principal = owner("author", given("author"))
    play.make_rule("shop.owned", principal=principal)
    play.make_rule("shop.own")
    identities.disable(identity, by=principals.ROOT, now=NOW)
    by_rule = {row.rule.ref: row for row in play.answer(1)}
    assert (by_rule["shop.owned"].state, by_rule["shop.owned"].reason) == (
        "rejected", "owner_refused",
    )  # fmt: skip
    assert by_rule["shop.own"].state == "executed"


def test_dangerous_action_needs_what_its_owner_has_lost() -> None:
    identity, principal = owner(
        "author", given("author"), given("actions.run_any_command"), given("payloads.read")
    )
    make_action("core.shell", dangerous=True)
    play.make_rule("shop.danger", action_ref="core.shell", principal=principal)
    play.make_rule("shop.harmless", principal=principal)
    identity.grants.filter(gives="actions.run_any_command").delete()
    by_rule = {row.rule.ref: row for row in play.answer(1)}
    assert (by_rule["shop.danger"].state, by_rule["shop.danger"].reason) == (
        "rejected", "owner_refused",
    )  # fmt: skip
    assert by_rule["shop.harmless"].state == "executed"


# --- suppression ---------------------------------------------------------------------------------

BY_PARITY = {"suppress": {"by": "{{ trigger.number % 2 }}", "seconds": 60}}


def test_of_fifty_that_are_the_same_one_is_executed() -> None:
    play.make_rule(options={"suppress": {"by": "{{ event.type }}", "seconds": 60}})
    rows = play.answer(*range(50))
    assert [row.state for row in rows].count("executed") == 1
    assert [row.state for row in rows].count("suppressed") == 49
    assert Suppression.objects.get().hits == 49


def test_what_differs_is_answered_and_so_is_what_comes_later() -> None:
    play.make_rule(options=BY_PARITY)
    assert [row.state for row in play.answer(1, 2)] == ["executed", "executed"]
    assert [row.state for row in play.answer(3, now=NOW + seconds(59))] == ["suppressed"]
    assert [row.state for row in play.answer(5, now=NOW + seconds(60))] == ["executed"]


def test_event_that_is_asked_late_is_suppressed_by_the_answer_to_a_later_one() -> None:
    play.make_rule(options=BY_PARITY)
    play.answer(1)
    [row] = play.enforce(play.match(play.record(3, now=NOW - seconds(3_600))))
    assert row.state == "suppressed"


def test_answer_by_a_clock_that_was_set_back_suppresses_no_other() -> None:
    play.make_rule(options=BY_PARITY)
    play.answer(1, now=NOW + seconds(3_600))
    assert [row.state for row in play.answer(3, 5)] == ["executed", "suppressed"]


def test_refused_execution_suppresses_nothing() -> None:
    make_action(parameters_schema=NUMBERS)
    play.make_rule(options=BY_PARITY)
    rows = play.answer(11, 13, 5, 7)
    assert [row.state for row in rows] == ["rejected", "rejected", "executed", "suppressed"]


# --- faults --------------------------------------------------------------------------------------


def test_fault_of_ours_rejects_the_one_to_blame(monkeypatch: pytest.MonkeyPatch) -> None:
    render = parameters.render

    def fail_for_two(document: Any, known: Any) -> Any:
        if known.trigger["number"] == 2:
            raise ZeroDivisionError("a fault of ours")
        return render(document, known)

    monkeypatch.setattr(parameters, "render", fail_for_two)
    play.make_rule()
    rows = play.answer(1, 2, 3)

    assert [(row.state, row.reason) for row in rows] == [
        ("executed", ""), ("rejected", "internal_error"), ("executed", ""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "values",
    [
        {"state": "executed", "ended_at": NOW},
        {"ended_at": NOW},
        {"state": "rejected", "ended_at": NOW},
        {"state": "lost"},
    ],
)
def test_database_refuses_what_no_enforcement_can_be(values: dict[str, Any]) -> None:
    play.make_rule()
    [row] = play.match(play.record(1))
    with pytest.raises(IntegrityError), transaction.atomic():
        Enforcement.objects.filter(pk=row.pk).update(**values)
