"""What a worker does about what it hears, or does not hear, when it renews its heartbeat."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError
from django.utils import timezone

from orchestrator.core import fleet
from workers import processes
from workers.agent import Agent as Registered
from workers.heartbeat import RETRY_SECONDS, Heartbeat


class Agent:
    """Notes down what it is told to do."""

    worker_id, incarnation, name = 1, 1, "w1"
    is_stopping = is_paused = False
    loop_is_stuck = False

    @property
    def loop(self) -> Agent:
        return self

    @property
    def departure(self) -> Agent:
        return self

    def __init__(self) -> None:
        self.story: list[str] = []
        self.admission = SimpleNamespace(begin=lambda: self.story.append("takes work"))
        self.desk = SimpleNamespace(claimed={})

    def turns(self, *, within_seconds: float) -> bool:
        return not self.loop_is_stuck

    def die(self, why: str) -> None:
        self.story.append(f"died: {why}")
        raise SystemExit(70)

    def finish_and_go(self) -> None:
        self.story.append("finishes and goes")


@pytest.fixture
def notes() -> Agent:
    """An agent that only notes down."""
    return Agent()


@pytest.fixture
def beating(notes: Agent, monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Any) -> Any:
    """A heartbeat of this agent; the database says what `told` is."""
    settings.DATA_DIR = tmp_path
    beating: Any = Heartbeat(notes)  # type: ignore[arg-type]
    said = SimpleNamespace(answer=fleet.HeartbeatAnswer.CARRY_ON)

    def beat(**_: Any) -> fleet.HeartbeatAnswer:
        if isinstance(said.answer, Exception):
            raise said.answer
        return said.answer  # type: ignore[no-any-return]

    monkeypatch.setattr("workers.heartbeat.fleet.beat", beat)
    # no database but the one above: what other tests have left connected is not asked
    monkeypatch.setattr("workers.heartbeat.clock.now", timezone.now)
    monkeypatch.setattr("workers.heartbeat.close_old_connections", lambda: None)
    monkeypatch.setattr(beating.audit, "compare", lambda **_: notes.story.append("audit"))
    monkeypatch.setattr("workers.heartbeat.executions.settle_replaced", lambda **_: None)
    monkeypatch.setattr(beating.sentinel, "renew", lambda: notes.story.append("sentinel renewed"))
    beating.said = said
    return beating


def test_renewed_heartbeat_is_told_to_the_sentinel_and_compared_with_what_runs(
    beating: Any, notes: Agent
) -> None:
    before = beating.renewed_at
    assert beating._beat()
    assert notes.story == ["sentinel renewed", "takes work", "audit"]
    assert beating.renewed_at > before


def test_registration_is_the_first_heartbeat_however_long_the_start_has_waited(
    monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Any
) -> None:
    settings.DATA_DIR = tmp_path
    agent: Any = Registered(worker_id=1, capacity=1, pool_kind="thread")

    def wait_for_an_executor(_: int) -> None:
        agent.heartbeat.renewed_at -= agent.heartbeat.limit_seconds + 1

    monkeypatch.setattr("workers.agent._declare", wait_for_an_executor)
    monkeypatch.setattr("workers.agent.database.wait_until_reachable", lambda: None)
    monkeypatch.setattr("workers.agent.database.fingerprint", lambda: "here")
    monkeypatch.setattr("workers.agent.runtimes.offered", lambda: ["python"])
    monkeypatch.setattr(agent.code, "survey", list)
    for left in ("processes.kill_all", "container.remove_left"):
        monkeypatch.setattr(f"workers.agent.{left}", lambda token: None)
    monkeypatch.setattr("workers.agent.work_dirs.remove_left", lambda: None)
    monkeypatch.setattr(agent.heartbeat.sentinel, "renew", lambda: None)
    monkeypatch.setenv(processes.WORKER_TOKEN, "")
    row = SimpleNamespace(name="w1", incarnation=2)
    monkeypatch.setattr("workers.agent.fleet.register", lambda **_: row)

    agent.register()

    assert (agent.name, agent.heartbeat.is_overdue) == ("w1", False)


def test_worker_that_was_declared_lost_dies(beating: Any, notes: Agent) -> None:
    beating.said.answer = fleet.HeartbeatAnswer.LOST
    with pytest.raises(SystemExit):
        beating._beat()
    assert notes.story == ["died: it was declared lost or replaced"]


def test_worker_that_signs_off_during_a_heartbeat_is_not_lost(beating: Any, notes: Agent) -> None:
    beating.said.answer = fleet.HeartbeatAnswer.LOST
    beating.stop()
    beating._beat()
    assert notes.story == []


def test_worker_that_is_drained_finishes_and_goes_once(beating: Any, notes: Agent) -> None:
    beating.said.answer = fleet.HeartbeatAnswer.DRAIN
    assert beating._beat()
    notes.is_stopping = True
    assert beating._beat()
    assert notes.story.count("finishes and goes") == 1


def test_database_that_is_away_is_asked_again_until_it_is_too_late(
    beating: Any, notes: Agent
) -> None:
    beating.said.answer = OperationalError("gone")
    assert not beating._beat()
    assert notes.story == [], "neither the sentinel nor anybody else believes it to be renewed"
    assert not beating.is_overdue

    beating.renewed_at -= beating.limit_seconds + 1
    with pytest.raises(SystemExit):
        beating.run()
    assert notes.story == ["died: its heartbeat could not be renewed"]


@pytest.mark.parametrize("error", [OSError("no process"), RuntimeError("no thread")])
def test_worker_lives_on_whatever_comes_with_its_heartbeat_fails(
    beating: Any, notes: Agent, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(**_: Any) -> None:
        raise error

    monkeypatch.setattr("workers.heartbeat.RETRY_SECONDS", 0.1)
    monkeypatch.setattr("workers.heartbeat.executions.settle_replaced", fail)
    monkeypatch.setattr(beating.audit, "look_for_cancels", fail)
    renewals = iter([error, error, None])

    def renew() -> None:
        beating.look_for_cancels_soon()
        if (failure := next(renewals)) is not None:
            raise failure
        beating.stop()

    monkeypatch.setattr(beating.sentinel, "renew", renew)
    beating.run()
    assert notes.story == ["takes work", "audit"]


def test_heartbeat_that_took_long_is_followed_by_the_next_at_once(
    beating: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database that stands still twice, with a moment between: the worker has to use it."""
    interval_seconds, limit_seconds = beating.interval_seconds, beating.limit_seconds
    asked_at = beating.renewed_at

    def pause_seconds(after: float, *, renewed: bool = True) -> float:
        monkeypatch.setattr("workers.heartbeat.seconds_counted", lambda: asked_at + after)
        found: float = beating._pause_seconds(renewed=renewed)
        return found

    assert pause_seconds(0) == interval_seconds
    assert pause_seconds(1) == interval_seconds - 1
    for after in (interval_seconds, limit_seconds - 2):
        assert pause_seconds(after) == RETRY_SECONDS
        assert pause_seconds(after, renewed=False) == RETRY_SECONDS
    assert pause_seconds(limit_seconds - 0.25) == 0.25, "it dies in time"


def test_limit_is_an_interval_before_others_act_and_the_sentinels_between(
    beating: Any, settings: Any
) -> None:
    stale_seconds = settings.MUSTER.staleness_seconds
    interval_seconds = settings.MUSTER.heartbeat_interval_seconds
    assert beating.limit_seconds == stale_seconds - interval_seconds
    assert beating.limit_seconds < beating.sentinel.limit_seconds < stale_seconds


def test_worker_whose_loop_is_stuck_does_not_beat(beating: Any, notes: Agent) -> None:
    notes.loop_is_stuck = True
    assert not beating._beat()
    assert notes.story == []


# --- looks for cancels between two heartbeats ----------------------------------------------------


@pytest.fixture
def looks(beating: Any, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When it looked; the times of the looks shortened tenfold."""
    found: list[float] = []
    monkeypatch.setattr("workers.heartbeat.LOOK_SECONDS", 0.1)
    monkeypatch.setattr(beating.audit, "look_for_cancels", lambda: found.append(time.monotonic()))
    return found


def test_idle_worker_looks_for_no_cancels(beating: Any, looks: list[float]) -> None:
    beating._pause(0.35)
    assert looks == []


def test_worker_that_runs_something_looks_without_any_message(
    beating: Any, notes: Agent, looks: list[float]
) -> None:
    notes.desk.claimed["attempt"] = object()
    beating._pause(2)
    assert 2 <= len(looks) <= 20


def test_message_makes_it_look_at_once_and_any_number_of_them_a_few_times(
    beating: Any, looks: list[float]
) -> None:
    over = threading.Event()

    def flood() -> None:
        while not over.is_set():
            beating.look_for_cancels_soon()

    thread = threading.Thread(target=flood)
    thread.start()
    beating._pause(1)  # nothing runs: it looks for a message, or not at all
    over.set()
    thread.join()
    assert 1 <= len(looks) <= 22


def test_pause_ends_when_it_leaves_and_a_database_that_is_away_ends_nothing(
    beating: Any, notes: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        beating.stop()
        raise OperationalError("gone")

    monkeypatch.setattr(beating.audit, "look_for_cancels", fail)
    beating.look_for_cancels_soon()
    began = time.monotonic()
    beating._pause(60)
    assert time.monotonic() - began < 30
    assert notes.story == []
