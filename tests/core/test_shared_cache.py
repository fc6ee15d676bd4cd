"""What is shared by Redis: the same for all processes, and no request waits when it is away."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from django.core.cache import caches

from orchestrator.core import shared_cache
from settings import base
from tests import servers
from tests.logged import logged
from tests.waiting import wait_until

AT_ONCE = 16
"""As many threads as an API process has."""


@pytest.fixture
def shared(shared_redis: servers.RedisServer, settings: Any) -> Iterator[servers.RedisServer]:
    """A Redis for this process, empty, and up again afterwards."""
    _use(shared_redis, settings)
    caches["default"].clear()
    yield shared_redis
    if shared_redis.is_running:
        shared_redis.resume()
    shared_redis.start()


@pytest.fixture(autouse=True)
def breaker(monkeypatch: pytest.MonkeyPatch) -> shared_cache.Breaker:
    """One that has seen no failure, and tries again soon."""
    fresh = shared_cache.Breaker()
    monkeypatch.setattr(shared_cache, "breaker", fresh)
    monkeypatch.setattr(shared_cache, "PAUSE_SECONDS", 0.5)
    return fresh


def _use(server: servers.RedisServer, settings: Any) -> None:
    settings.REDIS_URL, settings.CACHES = server.url, base.caches(server.url)


class Computed:
    """A function that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> dict[str, int]:
        self.calls += 1
        return {"calls": self.calls}


def test_without_redis_everything_is_computed_and_counted_in_this_process() -> None:
    compute = Computed()
    assert [shared_cache.kept("a", compute, seconds=60) for _ in range(2)] == [
        {"calls": 1},
        {"calls": 2},
    ]
    assert [shared_cache.count("a", seconds=60) for _ in range(3)] == [1, 2, 3]
    assert shared_cache.count("b", seconds=60) == 1


def test_value_is_computed_once_in_its_time(shared: servers.RedisServer) -> None:
    compute = Computed()
    for _ in range(3):
        assert shared_cache.kept("a", compute, seconds=60) == {"calls": 1}
    assert shared_cache.kept("b", compute, seconds=1) == {"calls": 2}
    wait_until(lambda: shared_cache.kept("b", compute, seconds=1) != {"calls": 2}, seconds=10)


def test_counts_end_with_their_time_and_have_no_name_of_a_caller_in_them(
    shared: servers.RedisServer,
) -> None:
    assert [shared_cache.count("service:ci", seconds=60) for _ in range(3)] == [1, 2, 3]
    with redis.Redis.from_url(shared.url) as client:
        (key,) = client.keys()
        assert b"ci" not in key.partition(b":")[2]
        assert key.startswith(b"muster:")
        assert 0 < client.ttl(key) <= 60


@pytest.mark.parametrize("fault", ["kill", "stop", "pause"])
def test_nobody_waits_for_a_redis_that_is_away_and_it_is_used_again(
    shared: servers.RedisServer,
    fault: str,
    caplog: pytest.LogCaptureFixture,
    breaker: shared_cache.Breaker,
) -> None:
    caplog.set_level("INFO")
    compute = Computed()
    shared_cache.kept("a", compute, seconds=60)
    assert shared_cache.count("n", seconds=60) == 1
    getattr(shared, fault)()

    seconds = _seconds_at_once(lambda: shared_cache.kept("a", compute, seconds=60))
    assert compute.calls == 1 + AT_ONCE
    assert seconds < 5, "one time limit of 0.25 s for all, or for ever"
    began = time.monotonic()
    counts = [shared_cache.count("n", seconds=60) for _ in range(200)]
    assert counts == list(range(1, 201)), "this process counts for itself"
    assert time.monotonic() - began < 10, "a limit for each were 50 s"
    assert (
        len(
            logged(
                caplog, "redis does not answer: values are computed, each process counts for itself"
            )
        )
        == 1
    )

    shared.resume() if fault == "pause" else shared.start()
    wait_until(lambda: shared_cache.count("later", seconds=60) and not breaker.is_away, seconds=20)
    assert len(logged(caplog, "redis answers again")) == 1
    calls = compute.calls
    shared_cache.kept("c", compute, seconds=60)
    shared_cache.kept("c", compute, seconds=60)
    assert compute.calls == calls + 1


def _seconds_at_once(call: Callable[[], object]) -> float:
    """The time that as many threads take together for one call each."""
    threads = [threading.Thread(target=call) for _ in range(AT_ONCE)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.monotonic() - began


class Evil:
    """What unpickles by running a command."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_what_somebody_else_wrote_there_is_not_believed_and_runs_nothing(
    shared: servers.RedisServer, tmp_path: Path
) -> None:
    compute = Computed()
    shared_cache.kept("a", compute, seconds=60)
    with redis.Redis.from_url(shared.url) as client:
        (key,) = client.keys()
        client.set(key, pickle.dumps(Evil(tmp_path / "ran")))
    assert shared_cache.kept("a", compute, seconds=60) == {"calls": 2}
    assert not (tmp_path / "ran").exists()
