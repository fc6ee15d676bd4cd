"""Agents whose threads have not begun, and one whose clerks work."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections

from orchestrator.core.executions import Ended
from orchestrator.core.reasons import Reason
from orchestrator.core.states import ExecutionStatus
from tests.factories import make_execution, make_worker
from workers import database_threads
from workers.agent import Agent
from workers.runtimes import warm_process

# no machine has an engine and an image for it by itself, so that these tests are there if asked for
collect_ignore = [] if os.environ.get("TEST_CONTAINER_IMAGE") else ["test_container_engine.py"]


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


@pytest.fixture
def working(w1: Agent, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    """The agent of `w1`, whose clerks work; nothing starts what they claim."""
    threads: list[Any] = [w1.claimer, w1.finisher]
    for clerk in threads:
        original = clerk.run

        def run(original: Any = original) -> None:
            try:
                original()
            except StopClerk:
                connections.close_all()

        monkeypatch.setattr(clerk, "run", run)
        clerk.start()
    yield w1
    monkeypatch.setattr(database_threads, "_gather", stop)
    w1.claimer.asked.put([])
    w1.finisher.ends.put(Ended(make_execution(ExecutionStatus.RUNNING), Reason.SUCCEEDED, {}))
    for clerk in threads:
        clerk.join(10)
        assert not clerk.is_alive()


class StopClerk(Exception):
    pass


def stop(*_: Any, **__: Any) -> None:
    raise StopClerk
