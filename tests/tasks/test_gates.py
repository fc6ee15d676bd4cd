"""What a keeper of gates holds, and whose answer it gives."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from orchestrator.core import lanes, publisher
from orchestrator.core.lanes import Fate
from orchestrator.queues.gates import intake, telling
from orchestrator.queues.gates.judging import Does, Verdict
from orchestrator.queues.models import Gate, WorkQueue
from tasks.gate_links import Held
from tasks.gates import Keeper
from tests.queues.gates import messages

TICKET = 7


class Channel:
    """Notes what is acknowledged on it."""

    def __init__(self) -> None:
        self.acked: list[int] = []

    def basic_ack(self, tag: int) -> None:
        self.acked.append(tag)


def held(*, redelivered: bool = False, channel: Channel | None = None) -> Held:
    delivery = intake.deliver(messages.body(), {}, {}, redelivered=redelivered)
    return Held(channel=channel, tag=1, delivery=delivery)


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


# --- what is passed on ---------------------------------------------------------------------------


FORWARD = intake.Taken(Verdict(Does.FORWARD, to="bills"))


def input_with(channel: Channel) -> Any:
    gate = Gate(queue=WorkQueue(name="orders"), input_queue="orders.in")
    return SimpleNamespace(gate=gate, channel=channel, received=[], postponed=[])


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Why messages were refused."""
    reasons: list[str] = []
    monkeypatch.setattr(
        Keeper, "_take_in", lambda self, input, batch, undeliverable: reasons.append(undeliverable)
    )
    return reasons


def answering(outcome: Fate | Exception) -> Callable[..., list[Fate]]:
    def send(sent: list[Any], **_: Any) -> list[Fate]:
        if isinstance(outcome, Exception):
            raise outcome
        return [outcome] * len(sent)

    return send


@pytest.mark.parametrize(
    "outcome",
    [Fate(lanes.REFUSED, "the broker refused (nack) it"), publisher.BrokerUnavailable("stalled")],
)
def test_message_that_the_broker_may_forward_later_is_tried_again(
    outcome: Fate | Exception, refused: list[str], monkeypatch: pytest.MonkeyPatch, db: None
) -> None:
    monkeypatch.setattr(publisher, "send_raw", answering(outcome))
    channel = Channel()
    input, message = input_with(channel), held(channel=channel)
    Keeper("default", "e1")._pass_on(input, [(message, FORWARD)])
    assert (input.postponed, refused, channel.acked) == ([message], [], [])


@pytest.mark.parametrize("kind", [lanes.RETURNED, lanes.REFUSED])
def test_message_that_can_never_be_forwarded_is_refused(
    kind: str, refused: list[str], monkeypatch: pytest.MonkeyPatch, db: None
) -> None:
    fate = Fate(kind, "no queue for it", is_final=True)
    monkeypatch.setattr(publisher, "send_raw", answering(fate))
    channel = Channel()
    input = input_with(channel)
    Keeper("default", "e1")._pass_on(input, [(held(channel=channel), FORWARD)])
    assert (input.postponed, refused) == ([], ["bills: no queue for it"])


# --- copies whose answer is not taken -------------------------------------------------------------


@pytest.fixture
def untold(monkeypatch: pytest.MonkeyPatch) -> list[set[int]]:
    """The tickets that are to be answered again, at each try: no answer is taken."""
    tries: list[set[int]] = []

    def tell_again(ids: set[int], **_: Any) -> set[int]:
        tries.append(ids)
        return set()

    monkeypatch.setattr(telling, "tell_again", tell_again)
    monkeypatch.setattr(telling, "told_among", lambda ids: set())
    return tries


def keeper_of_copy(channel: Channel) -> Keeper:
    keeper = Keeper("default", "e1")
    keeper.sweep_at = float("inf")
    keeper.again.append((held(channel=channel), TICKET))
    return keeper


def test_copy_whose_answer_is_not_taken_keeps_no_gate_waiting(
    untold: list[set[int]], db: None
) -> None:
    keeper = keeper_of_copy(Channel())
    began = time.monotonic()
    for _ in range(3):
        keeper._tell()
    assert time.monotonic() - began < 1
    assert untold == [{TICKET}], "the next try is that of the next look"
    keeper.again_at = 0.0
    keeper._tell()
    assert len(untold) == 2


def test_copy_whose_answer_is_never_taken_is_acknowledged_in_time(
    untold: list[set[int]], settings: Any, db: None
) -> None:
    channel = Channel()
    keeper = keeper_of_copy(channel)
    keeper._let_go()
    assert channel.acked == []
    keeper.again[0][0].since -= settings.MUSTER.gate_hold_seconds + 1
    keeper._let_go()
    assert (channel.acked, keeper.again) == ([1], [])


@pytest.mark.parametrize("where", ["again", "postponed", "held"])
def test_channel_stays_open_while_something_is_to_be_acknowledged_on_it(where: str) -> None:
    keeper, channel = Keeper("default", "e1"), Channel()
    input = input_with(channel)
    assert not keeper._holds_of(input)
    message = held(channel=channel)
    if where == "again":
        keeper.again.append((message, TICKET))
    elif where == "held":
        keeper.held[TICKET] = [message]
    else:
        input.postponed.append(message)
    assert keeper._holds_of(input)
    assert not keeper._holds_of(input_with(Channel()))
