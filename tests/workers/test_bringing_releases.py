"""Releases come to a worker before an execution needs them; what does not come is given back."""

from __future__ import annotations

import threading
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.core.models import Release
from orchestrator.core.packs import environments, fetching
from orchestrator.core.packs.fetching import CannotFetch
from orchestrator.core.reasons import Reason
from tests.core.packs.folder import Folder
from tests.core.packs.releasing import install, release_of, shop
from tests.factories import NOW
from tests.waiting import wait_until
from workers.agent import Agent
from workers.releases import LONGEST_PAUSE_SECONDS, WAIT_SECONDS

pytestmark = pytest.mark.usefixtures("database")


class Clock:
    """`time.monotonic`, which a test moves."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def monotonic(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("workers.releases.time", SimpleNamespace(monotonic=clock))
    return clock


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "net")


@pytest.fixture
def release(folder: Folder) -> Release:
    shop(folder, 1)
    folder.write("requirements.txt", "requests\n")
    return release_of(install(folder.path))


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch, agent: Agent) -> list[tuple[Reason, Any]]:
    """The reasons and results of attempts that were ended without having begun."""
    ends: list[tuple[Reason, Any]] = []
    monkeypatch.setattr(
        agent.desk, "ended", lambda attempt, reason, result: ends.append((reason, result))
    )
    return ends


def attempt_of(release: Release) -> Any:
    execution = SimpleNamespace(
        release_id=release.pk,
        action_ref="net.say",
        action=SimpleNamespace(ref="net.say", runtime="python"),
    )
    return SimpleNamespace(execution=execution, is_canceling=False, release_wanted_at=0.0)


def test_an_attempt_waits_while_its_environment_is_made_and_then_goes_on(
    agent: Agent,
    release: Release,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ended: list[Any],
) -> None:
    place = tmp_path / "net"  # as the folder of the pack: it has a requirements.txt
    makes, goes_on = threading.Event(), threading.Event()
    made: list[Path] = []

    def make(folder: Path, **how: Any) -> str:
        makes.set()
        assert goes_on.wait(30)
        made.append(folder)
        return "python"

    monkeypatch.setattr(environments, "python_of", make)
    monkeypatch.setattr(fetching, "ensure", lambda release: place)
    gone_on: list[Any] = []
    monkeypatch.setattr(agent.loop, "call_soon", lambda call: call())
    monkeypatch.setattr(agent.desk, "go_on", gone_on.extend)
    releases, attempt = agent.releases, attempt_of(release)
    releases.bring(attempt)
    releases._fetch_wanted()
    releases._take()
    assert makes.wait(30)
    releases._settle()
    assert (gone_on, ended) == ([], [])
    goes_on.set()
    releases._environments[release.pk].join(30)
    releases._settle()
    assert made == [place]
    assert gone_on == [attempt]
    assert releases.path_for(attempt.execution) == str(place)


def test_an_attempt_is_given_back_after_its_wait_and_says_why(
    agent: Agent,
    release: Release,
    monotonic: Clock,
    monkeypatch: pytest.MonkeyPatch,
    ended: list[Any],
) -> None:
    fail(monkeypatch)
    releases, attempt = agent.releases, attempt_of(release)
    releases.bring(attempt)
    releases._fetch_wanted()
    releases._take()
    monotonic.now += WAIT_SECONDS
    releases._settle()
    assert ended == []
    monotonic.now += 0.1
    releases._settle()
    ((reason, result),) = ended
    assert reason == Reason.PACK_UNAVAILABLE
    assert "the disk is full" in str(result)
    assert releases.lacks(release.pk)


def test_no_fetch_keeps_attempts_from_going_on_or_back_in_time(
    agent: Agent,
    folder: Folder,
    release: Release,
    monkeypatch: pytest.MonkeyPatch,
    ended: list[Any],
) -> None:
    fetches, goes_on = threading.Event(), threading.Event()

    def hang(release: Release) -> Path:
        fetches.set()
        assert goes_on.wait(60)
        raise CannotFetch("another process of this host fetches it")

    monkeypatch.setattr("workers.releases.WAIT_SECONDS", 0.2)
    monkeypatch.setattr(fetching, "ensure", hang)
    gone_on: list[Any] = []
    monkeypatch.setattr(agent.loop, "call_soon", lambda call: call())
    monkeypatch.setattr(agent.desk, "go_on", gone_on.extend)
    releases, late, soon = agent.releases, attempt_of(release), attempt_of(release)
    releases.bring(late)
    releases.start()
    try:
        assert fetches.wait(60)
        wait_until(lambda: ended)
        ((reason, result),) = ended
        assert reason == Reason.PACK_UNAVAILABLE
        assert "is being fetched" in str(result)

        releases._here[release.pk] = str(folder.path)
        releases.bring(soon)
        wait_until(lambda: gone_on == [soon])
    finally:
        agent.is_stopping = True
        agent.stops.set()
        goes_on.set()
        for thread in (releases, releases._keeper):
            thread.join(60)


def test_a_release_that_cannot_be_fetched_is_tried_ever_more_rarely(
    agent: Agent, release: Release, monotonic: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = fail(monkeypatch)
    releases, at = agent.releases, []
    for _ in range(300):
        before = len(tries)
        releases._look()
        if len(tries) > before:
            at.append(monotonic.now)
        monotonic.now += 1.0
    pauses = [later - earlier for earlier, later in pairwise(at)]
    assert pauses[:5] == [2.0, 4.0, 8.0, 16.0, 32.0]
    assert set(pauses[5:]) == {LONGEST_PAUSE_SECONDS}
    Release.objects.update(installed_at=NOW + timedelta(hours=1))  # the store was mended
    before = len(tries)
    monotonic.now += 2.0
    releases._look()
    assert len(tries) == before + 1


def fail(monkeypatch: pytest.MonkeyPatch) -> list[Release]:
    """Have no release come; returns those that were wanted."""
    tries: list[Release] = []

    def ensure(release: Release) -> Path:
        tries.append(release)
        raise CannotFetch("the disk is full")

    monkeypatch.setattr(fetching, "ensure", ensure)
    return tries
