"""Agents whose threads have not begun."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.factories import make_worker
from workers.agent import Agent
from workers.runtimes import warm_process


@pytest.fixture(autouse=True, scope="module")
def nothing_is_left() -> Iterator[None]:
    """The warm processes of a module's tests end with it."""
    yield
    warm_process.end_all()


@pytest.fixture
def agent() -> Agent:
    """An agent of two slots, of a worker that is in no database."""
    return Agent(worker_id=1, capacity=2, pool_kind="prefork")


@pytest.fixture
def w1() -> Agent:
    """The agent of the worker `w1`, in its first life."""
    agent = Agent(worker_id=make_worker("w1").pk, capacity=10, pool_kind="prefork")
    agent.incarnation, agent.name = 1, "w1"
    return agent
