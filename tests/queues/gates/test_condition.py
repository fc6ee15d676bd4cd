"""Gates that take nothing in are named where operators look."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from orchestrator.core import clock, reachability
from orchestrator.core.api import health
from orchestrator.queues.gates import condition, metrics
from orchestrator.queues.gates.condition import CutOff, Trouble
from orchestrator.queues.gates.keeping import Plan
from orchestrator.queues.models import Gate, Keeper, WorkQueue
from tests import commands
from tests.factories import NOW

MakeGate = Callable[..., Gate]


def keep(name: str = "e1", *, seconds_ago: float = 0, **values: Any) -> None:
    seen_at = NOW - timedelta(seconds=seconds_ago)
    Keeper.objects.create(
        name=name, broker=values.pop("broker", "default"), seen_at=seen_at, **values
    )


def found() -> list[CutOff]:
    return condition.cut_off(now=NOW)


def test_gate_with_a_keeper_is_well(make_gate: MakeGate) -> None:
    make_gate()
    keep()
    assert found() == []


def test_gate_that_nobody_keeps_is_named(make_gate: MakeGate) -> None:
    make_gate()
    keep(broker="another")
    assert found() == [CutOff("orders", Trouble.NO_KEEPER, "no executor keeps it")]


def test_gate_whose_keepers_are_silent_is_named_with_the_last_of_them(make_gate: MakeGate) -> None:
    make_gate()
    keep("e1", seconds_ago=90)
    keep("e2", seconds_ago=40)
    [each] = found()
    assert each.trouble is Trouble.SILENT
    assert each.text == "its keeper e2 has been silent for 40 s"
    keep("e3", seconds_ago=1)
    assert found() == []


def test_gate_whose_broker_is_away_for_all_keepers_is_named(make_gate: MakeGate) -> None:
    make_gate()
    keep("e1", problem="10.0.0.7:5672: Connection refused")
    assert found() == [CutOff("orders", Trouble.UNREACHABLE, "10.0.0.7:5672: Connection refused")]
    keep("e2")
    assert found() == []


def test_gate_that_its_broker_refuses_is_named_and_its_neighbour_is_not(
    make_gate: MakeGate,
) -> None:
    make_gate()
    make_gate(queue={"name": "bills"}, input_queue="bills.in")
    keep(problem="queue bills.in differs", refused={"bills": "queue bills.in differs"})
    assert found() == [CutOff("bills", Trouble.REFUSED, "queue bills.in differs")]


@pytest.mark.parametrize("retired_at", [None, NOW])
def test_gate_of_a_queue_that_accepts_nothing_is_not_named(
    retired_at: Any, make_gate: MakeGate
) -> None:
    make_gate()
    WorkQueue.objects.update(accepts=False, retired_at=retired_at)
    assert found() == []


def test_refusal_is_kept_until_the_gate_is_opened(make_gate: MakeGate) -> None:
    gate = make_gate()
    plan = Plan("default", "e1")
    plan.refresh(now=NOW)
    plan.note_refused(gate, "queue orders.in differs")
    for _ in range(2):
        plan.note_alive(held=0, now=NOW)
        assert [each.trouble for each in found()] == [Trouble.REFUSED]
    plan.note_opened(gate)
    plan.note_alive(held=0, now=NOW)
    assert found() == []
    plan.note_refused(gate, "queue orders.in differs")
    plan.note_problem("cut off")
    Keeper.objects.update(seen_at=NOW)
    assert [each.trouble for each in found()] == [Trouble.UNREACHABLE]


def test_many_gates_are_counted_after_the_first(
    make_gate: MakeGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        make_gate(queue={"name": name}, input_queue=name)
    monkeypatch.setattr(condition, "MOST_NAMED", 2)
    first, _, more = condition.warnings(now=NOW)
    assert first == "gate a: no executor keeps it"
    assert more == "1 more gates take nothing in"


@pytest.fixture
def _executors_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "services", reachability.Probe(list))


@pytest.mark.usefixtures("_executors_work")
def test_readiness_names_the_gate_without_its_host_and_is_ready_all_the_same(
    make_gate: MakeGate, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reachability, "broker", reachability.Probe(lambda: True))
    monkeypatch.setattr(
        reachability, "warnings", reachability.Probe(reachability.warnings.question)
    )
    make_gate()
    keep(problem="10.0.0.7:5672: Connection refused", seconds_ago=0)
    Keeper.objects.update(seen_at=clock.now())
    response = client.get("/health/ready")
    assert response.status_code == 200
    assert response.json()["warnings"] == ["gate orders: its broker cannot be reached"]


@pytest.mark.usefixtures("_executors_work")
def test_warnings_that_take_too_long_are_left_out(
    client: Client, db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow: Any = reachability.Probe(list)
    slow.ask = Future
    monkeypatch.setattr(reachability, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(reachability, "broker", reachability.Probe(lambda: True))
    monkeypatch.setattr(reachability, "database_writes", reachability.Probe(lambda: True))
    monkeypatch.setattr(reachability, "warnings", slow)
    response = client.get("/health/ready")
    assert (response.status_code, response.json()["warnings"]) == (200, [])


def test_queue_says_why_its_gate_takes_nothing_in(make_gate: MakeGate) -> None:
    make_gate()
    [listed] = [each for each in commands.items("queue", "list") if each["name"] == "orders"]
    assert listed["gate_problem"] == "no executor keeps it"
    assert "its gate takes nothing in: no executor keeps it" in commands.printed(
        "queue", "show", "orders"
    )


def test_metric_has_the_queue(make_gate: MakeGate) -> None:
    make_gate()
    [family] = [each for each in metrics.families(NOW) if each.name == "muster_gate_cut_off"]
    assert [(sample.labels, sample.value) for sample in family.samples] == [
        ({"queue": "orders"}, 1)
    ]
