"""A fleet with work, and a person of each role who looks at it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client

from orchestrator.console import attention, kept
from orchestrator.core import clock, reachability
from orchestrator.core.models import Action, Service, Tick, Worker
from tests.factories import make_action, make_execution, make_worker
from tests.principals import given, staff


@pytest.fixture
def action() -> Action:
    return make_action()


@pytest.fixture
def worker() -> Worker:
    return make_worker(now=clock.now(), host="node-1", labels={"zone": "a"}, capacity=4)


@pytest.fixture(autouse=True)
def all_is_well(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachability, "broker", reachability.Probe(lambda: True))
    monkeypatch.setattr(reachability, "warnings", reachability.Probe(list))
    monkeypatch.setitem(attention._last, "broker", True)
    # however slow the machine: what is the same for everybody is read once in a test
    for name in ("KEPT_SECONDS", "ANSWER_SECONDS"):
        monkeypatch.setattr(kept, name, 300)
    now = clock.now()
    Tick.objects.create(name="muster.check_timeouts", ran_at=now)
    for kind in ("executor", "beat"):
        make_service(kind)


def make_service(kind: str, *, name: str = "", silent_seconds: float = 0) -> Service:
    """A service that was last heard of so long ago."""
    now = clock.now()
    seen_at = now - timedelta(seconds=silent_seconds)
    return Service.objects.create(
        kind=kind, name=name or kind, host="node-1", pid=7, started_at=seen_at, seen_at=seen_at
    )


@pytest.fixture
def work(action: Action, worker: Worker) -> None:
    """Executions of each kind, all of a moment ago."""
    now = clock.now()
    for status in ("requested", "scheduling", "scheduled", "running", "running", "completed"):
        make_execution(status, action=action, worker=worker, now=now)
    result = {"message": "no route to printer 7"}
    make_execution("failed", action=action, worker=worker, now=now, reason="action_failed",
                   result=result)  # fmt: skip


@pytest.fixture
def person() -> Callable[[str], Client]:
    """The browser of somebody with this role; without one, of somebody without a grant."""
    return lambda role: staff(role or "nobody", *([given(role)] if role else []))
