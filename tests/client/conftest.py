"""Both clients, an action to request, and a network that loses what a test wants lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from orchestrator.core.models import Action
from tests.client.network import Network, connected, keep_time
from tests.core.api.client import SCHEMA
from tests.factories import make_action


@pytest.fixture
def action(db: None) -> Action:
    return make_action(parameters_schema=SCHEMA)


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    network = Network()
    keep_time(network, monkeypatch)
    return network


@pytest.fixture(params=["Muster", "AsyncMuster"])
def connect(
    network: Network, action: Action, token: str, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Any]]:
    """Make a client with these options: each test runs with both."""
    made: list[Any] = []

    def make(token: str = token, **options: Any) -> Any:
        made.append(connected(network, token, request.param, **options))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture
def muster(connect: Callable[..., Any]) -> Any:
    return connect()
