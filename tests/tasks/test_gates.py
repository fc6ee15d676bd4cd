"""What a keeper of gates holds, and whose answer it gives."""

from __future__ import annotations

from uuid import uuid4

import pytest

from orchestrator.queues.gates import intake
from orchestrator.queues.gates.judging import Does, Verdict
from orchestrator.queues.models import Gate, WorkQueue
from tasks.gate_links import Held
from tasks.gates import Keeper
from tests.queues.gates import messages

TICKET = 7


def held(*, redelivered: bool) -> Held:
    delivery = intake.deliver(messages.body(), {}, {}, redelivered=redelivered)
    return Held(channel=None, tag=1, delivery=delivery)


@pytest.mark.parametrize("custody", [Gate.Custody.RESULT, Gate.Custody.ROW])
def test_copy_of_what_another_keeper_holds_is_answered_after_the_original(custody: str) -> None:
    """Two keepers that hear of one end would else both answer it."""
    keeper, copy, execution = Keeper("default", "e1"), held(redelivered=False), uuid4()
    taken = intake.Taken(Verdict(Does.ATTACH), TICKET, execution)
    keeper._hold(Gate(queue=WorkQueue(), custody=custody), copy, taken)
    assert keeper.held == {TICKET: [copy]}
    assert (keeper.waiting, keeper.ended) == ({}, set())


def test_delivery_that_its_keeper_lost_is_answered_by_who_has_it_now() -> None:
    keeper, lost, execution = Keeper("default", "e1"), held(redelivered=True), uuid4()
    keeper._hold(
        Gate(queue=WorkQueue(), custody=Gate.Custody.RESULT),
        lost,
        intake.Taken(Verdict(Does.ATTACH), TICKET, execution),
    )
    assert (keeper.waiting, keeper.ended) == ({execution: TICKET}, {execution})
