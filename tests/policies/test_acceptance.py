"""What a policy concerns is not placed as it is accepted: nobody would have counted it."""

from __future__ import annotations

import pytest

from orchestrator.core import executions
from orchestrator.core.executions import NewExecution, placing
from orchestrator.core.models import Execution
from tests.core.scheduling import schedule
from tests.factories import NOW, make_action, make_worker
from tests.policies.play import make_policy, started

pytestmark = [
    pytest.mark.usefixtures("database", "sent", "idle"),
    pytest.mark.parametrize("database", ["postgresql"], indirect=True),
]


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch, placed_by_the_executor: None) -> None:
    monkeypatch.setattr(placing, "is_idle", lambda: True)


@pytest.fixture(autouse=True)
def fleet(database: str) -> None:
    make_action("core.echo")
    make_worker(capacity=10)


def request(requested_by: str = "ann") -> Execution:
    new = NewExecution(action_ref="core.echo")
    return executions.request(new, requested_by=requested_by, now=NOW)


def test_what_a_policy_concerns_is_left_to_the_executor() -> None:
    make_policy(limit=1)
    first, second = request(), request()
    assert started() == []
    schedule(first, second)
    assert started() == [first]


def test_what_no_policy_concerns_is_placed_at_once() -> None:
    make_policy("ann", scope="identity", target="ann", limit=1)
    by_bob, by_ann = request("bob"), request("ann")
    assert started() == [by_bob]
    schedule(by_ann)
    assert started() == [by_bob, by_ann]


def test_what_a_disabled_policy_would_concern_is_placed_at_once() -> None:
    make_policy(enabled=False)
    first = request()
    assert started() == [first]
