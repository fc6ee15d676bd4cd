"""What a service may neither declare nor look at, for a RabbitMQ that refuses a look."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
from amqp.exceptions import NotFound
from kombu import Connection

from orchestrator.core import declarations, topology


@pytest.fixture(autouse=True)
def restricted(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process's user may not declare the common part."""
    is_restricted = threading.Event()
    is_restricted.set()
    monkeypatch.setattr(declarations, "is_restricted", is_restricted)
    monkeypatch.setattr(declarations, "hidden", set())


def test_what_a_user_may_not_look_at_is_taken_to_be_there_and_asked_for_once(
    rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def look(channel: Any, name: str) -> None:
        asked.append(name)
        # refused with 403 to everybody, as RabbitMQ 4.3 refuses to look at what is not one's own
        channel.exchange_declare("amq.of_rabbitmq_itself", "topic")

    monkeypatch.setattr(topology, "look", look)
    with Connection(rabbitmq_url) as link:
        for _ in range(2):
            declarations.declare_on(link)
    assert asked == topology.names_of_common()


def test_common_part_that_is_missing_is_told(rabbitmq_url: str, settings: Any) -> None:
    settings.MUSTER = replace(settings.MUSTER, namespace="nobodys")
    with Connection(rabbitmq_url) as link, pytest.raises(NotFound, match="no exchange 'nobodys"):
        declarations.declare_on(link)
