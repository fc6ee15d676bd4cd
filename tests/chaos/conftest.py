"""What the storms and the campaigns of failpoints share."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests import servers
from tests.chaos.__main__ import BREAKABLE
from tests.scenarios.installation import Backend


@pytest.fixture
def seed(record_property: Callable[[str, object], None]) -> int:
    """Another one each time; CHAOS_SEED repeats a run."""
    seed = int(os.environ.get("CHAOS_SEED", random.randrange(10**6)))
    record_property("seed", seed)
    return seed


@pytest.fixture(scope="session")
def real(start_shared_server: Callable[..., Any]) -> Iterator[Backend]:
    """PostgreSQL, RabbitMQ and Redis, for these tests to break."""
    backend = Backend(
        start_shared_server(servers.PostgresServer, **BREAKABLE),
        start_shared_server(servers.RabbitServer),
        start_shared_server(servers.RedisServer),
    )
    yield backend
    backend.close()
