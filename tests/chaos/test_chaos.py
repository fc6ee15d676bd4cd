"""The small storm of every test run; `make chaos` is the large one."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests import servers
from tests.chaos import storm
from tests.chaos.__main__ import DURABLE
from tests.scenarios.installation import Backend

pytestmark = [pytest.mark.slow, pytest.mark.scenario, pytest.mark.timeout(420)]


@pytest.fixture
def seed(record_property: Callable[[str, object], None]) -> int:
    """Another one each time; CHAOS_SEED repeats a run."""
    seed = int(os.environ.get("CHAOS_SEED", random.randrange(10**6)))
    record_property("seed", seed)
    return seed


def test_promise_holds_on_servers_while_everything_breaks(
    start_server: Callable[..., Any], seed: int
) -> None:
    backend = Backend(
        start_server(servers.PostgresServer, settings=DURABLE), start_server(servers.RabbitServer)
    )
    _hold(backend, executions=300, submit_seconds=45, seed=seed)


def test_promise_holds_embedded_while_everything_breaks(seed: int) -> None:
    _hold(Backend(), executions=120, submit_seconds=25, seed=seed, workers=2)


def _hold(backend: Backend, *, executions: int, seed: int, **more: Any) -> None:
    try:
        outcome = storm.run(backend, executions=executions, faults_of_a_kind=1, seed=seed, **more)
    finally:
        backend.close()

    told = storm.summary(outcome)
    assert len(outcome.evidence.accepted) == executions, told
    assert not outcome.violations, told
    assert not outcome.ended_by_themselves, told
