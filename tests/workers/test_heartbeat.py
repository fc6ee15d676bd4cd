"""What a worker does about what it hears, or does not hear, when it renews its heartbeat."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError
from django.utils import timezone

from orchestrator.core import fleet
from workers.heartbeat import Heartbeat


class Agent:
    """Notes down what it is told to do."""

    worker_id, incarnation, name = 1, 1, "w1"
    is_stopping = is_paused = False
    loop_is_stuck = False

    def __init__(self) -> None:
        self.story: list[str] = []
        self.admission = SimpleNamespace(begin=lambda: self.story.append("takes work"))

    def loop_turns(self, *, within_seconds: float) -> bool:
        return not self.loop_is_stuck

    def die(self, why: str) -> None:
        self.story.append(f"died: {why}")
        raise SystemExit(70)

    def finish_and_go(self) -> None:
        self.story.append("finishes and goes")


@pytest.fixture
def agent() -> Agent:
    return Agent()


@pytest.fixture
def beating(agent: Agent, monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Any) -> Any:
    """A heartbeat of this agent; the database says what `told` is."""
    settings.DATA_DIR = tmp_path
    beating: Any = Heartbeat(agent)  # type: ignore[arg-type]
    said = SimpleNamespace(told=fleet.Told.CARRY_ON)

    def beat(**_: Any) -> fleet.Told:
        if isinstance(said.told, Exception):
            raise said.told
        return said.told  # type: ignore[no-any-return]

    monkeypatch.setattr("workers.heartbeat.fleet.beat", beat)
    # no database but the one above: what other tests have left connected is not asked
    monkeypatch.setattr("workers.heartbeat.clock.now", timezone.now)
    monkeypatch.setattr("workers.heartbeat.close_old_connections", lambda: None)
    monkeypatch.setattr(beating.audit, "compare", lambda **_: agent.story.append("audit"))
    monkeypatch.setattr("workers.heartbeat.executions.settle_replaced", lambda **_: None)
    monkeypatch.setattr(beating.sentinel, "renew", lambda: agent.story.append("sentinel renewed"))
    beating.said = said
    return beating


def test_renewed_heartbeat_is_told_to_the_sentinel_and_compared_with_what_runs(
    beating: Any, agent: Agent
) -> None:
    before = beating.renewed_at
    assert beating._beat()
    assert agent.story == ["sentinel renewed", "takes work", "audit"]
    assert beating.renewed_at > before


def test_worker_that_was_declared_lost_dies(beating: Any, agent: Agent) -> None:
    beating.said.told = fleet.Told.LOST
    with pytest.raises(SystemExit):
        beating._beat()
    assert agent.story == ["died: it was declared lost or replaced"]


def test_worker_that_is_drained_finishes_and_goes_once(beating: Any, agent: Agent) -> None:
    beating.said.told = fleet.Told.DRAIN
    assert beating._beat()
    agent.is_stopping = True
    assert beating._beat()
    assert agent.story.count("finishes and goes") == 1


def test_database_that_is_away_is_asked_again_until_it_is_too_late(
    beating: Any, agent: Agent
) -> None:
    beating.said.told = OperationalError("gone")
    assert not beating._beat()
    assert agent.story == [], "neither the sentinel nor anybody else believes it to be renewed"
    assert not beating.is_overdue

    beating.renewed_at -= beating.limit_seconds + 1
    with pytest.raises(SystemExit):
        beating.run()
    assert agent.story == ["died: its heartbeat could not be renewed"]


def test_limit_is_an_interval_before_others_act_and_the_sentinels_between(
    beating: Any, settings: Any
) -> None:
    stale_seconds = settings.MUSTER.staleness_seconds
    interval_seconds = settings.MUSTER.heartbeat_interval_seconds
    assert beating.limit_seconds == stale_seconds - interval_seconds
    assert beating.limit_seconds < beating.sentinel.limit_seconds < stale_seconds


def test_worker_whose_loop_is_stuck_does_not_beat(beating: Any, agent: Agent) -> None:
    agent.loop_is_stuck = True
    assert not beating._beat()
    assert agent.story == []
