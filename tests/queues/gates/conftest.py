"""A queue with a gate, and a broker that remembers what was sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.core import clock, lanes, publisher, relay
from orchestrator.core.lanes import Fate, RawMessage
from orchestrator.queues.models import Gate, WorkQueue
from tests import factories


class Sent(list[RawMessage]):
    """What was sent. A message to a queue of `gone` comes back; `error` is raised instead."""

    def __init__(self) -> None:
        super().__init__()
        self.gone: set[str] = set()
        self.error: Exception | None = None

    def send(self, messages: list[RawMessage], *, broker: str = "default") -> list[Fate]:
        if self.error is not None:
            raise self.error
        self += [message for message in messages if message.routing_key not in self.gone]
        return [
            Fate(lanes.RETURNED, "no queue for it", is_final=True)
            if message.routing_key in self.gone
            else Fate(lanes.TAKEN)
            for message in messages
        ]

    def to(self, queue: str) -> list[RawMessage]:
        return [message for message in self if message.routing_key == queue]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    sent = Sent()
    monkeypatch.setattr(publisher, "send_raw", sent.send)
    monkeypatch.setattr(relay, "send_soon", lambda messages: None)
    return sent


def make(*, queue: dict[str, Any] | None = None, **values: Any) -> Gate:
    """Make a queue `orders` with a gate; values of the queue are in `queue`."""
    now = clock.now()
    made = WorkQueue.objects.create(
        **{"name": "orders", "retry_limit": 3, "created_at": now, "updated_at": now} | (queue or {})
    )
    action = factories.make_action(idempotent=True)
    known = {
        "queue": made,
        "input_queue": "orders.in",
        "output_queue": "orders.out",
        "rejected_queue": "orders.rejected",
        "queue_type": "classic",
        "classifiers": {"Echo": {"action": action.ref}},
    }
    Gate.objects.create(**known | values)
    return Gate.objects.select_related("queue__action").get(queue=made)


@pytest.fixture
def make_gate(database: str, sent: Sent) -> Callable[..., Gate]:
    """Makes a gate on each database."""
    return make


@pytest.fixture
def gate(db: None, sent: Sent) -> Gate:
    """A gate in the database of unit tests."""
    return make()
