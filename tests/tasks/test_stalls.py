"""A thread that stands still is told of, with the place where it stands."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from tasks import stalls
from tasks.stalls import Stalls, Watched
from tests.logged import logged

TOLD = "a thread has been at one thing for long"


class Stuck(Watched):
    """Waits until it is let go."""

    def __init__(self) -> None:
        super().__init__(name="stuck", daemon=True)
        self.is_free = threading.Event()

    def run(self) -> None:
        self.stand_here()

    def stand_here(self) -> None:
        self.is_free.wait(30)


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    thread = Stuck()
    thread.start()
    yield thread
    thread.is_free.set()
    thread.join(5)


def test_thread_that_stands_still_is_told_of_with_its_place(
    stuck: Stuck, caplog: pytest.LogCaptureFixture
) -> None:
    stuck.busy_since = time.monotonic() - 12
    Stalls([stuck]).look()
    [line] = logged(caplog, TOLD)
    assert (line["thread"], line["seconds"], line["level"]) == ("stuck", 12, "warning")
    assert any(call.startswith("stand_here (") for call in line["at"])


def test_it_is_told_again_whenever_its_time_has_doubled(
    stuck: Stuck, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Stalls([stuck])
    stuck.busy_since = began = 1000.0
    for seconds in range(0, 50, 3):
        monkeypatch.setattr(stalls, "time", Clock(began + seconds))
        watch.look()
    assert [line["seconds"] for line in logged(caplog, TOLD)] == [12, 24, 48]


def test_what_waits_for_work_and_what_does_one_thing_after_another_is_not_told_of(
    stuck: Stuck, caplog: pytest.LogCaptureFixture
) -> None:
    watch = Stalls([stuck])
    watch.look()
    stuck.busy_since = time.monotonic() - 9
    watch.look()
    assert not logged(caplog, TOLD)


def test_next_thing_that_takes_long_is_told_of_anew(
    stuck: Stuck, caplog: pytest.LogCaptureFixture
) -> None:
    watch = Stalls([stuck])
    for seconds in (40, 11):
        stuck.busy_since = time.monotonic() - seconds
        watch.look()
    assert [line["seconds"] for line in logged(caplog, TOLD)] == [40, 11]


def test_failures_that_follow_closely_on_one_another_are_a_trouble(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing = Stuck()
    told = []
    for at in range(100, 113, 4):
        monkeypatch.setattr(stalls, "time", Clock(at))
        failing.note_failure(TypeError("of token 4711"))
        told.append(stalls.trouble([Stuck(), failing]))
    assert told == ["", "", "", "stuck has failed for 12 s: TypeError"]
    assert failing.trouble(117) == told[-1]
    assert failing.trouble(118) == "", "it goes on"
    monkeypatch.setattr(stalls, "time", Clock(118))
    failing.note_failure(TypeError())
    assert stalls.trouble([failing]) == "", "a new one"


def test_place_of_a_failure_is_told_and_not_its_text() -> None:
    failing = Stuck()
    for at in (0, 12):
        failing.failing_since = time.monotonic() - at
        failing.failed_at = time.monotonic()
        try:
            raise RecursionError("of token 4711")
        except RecursionError as error:
            failing.note_failure(error)
    assert failing.failure.startswith("RecursionError (test_stalls.py, line ")
    assert "4711" not in stalls.trouble([failing])


def test_thread_that_is_stuck_for_a_minute_is_a_trouble(stuck: Stuck) -> None:
    stuck.busy_since = 1000.0
    assert [stuck.trouble(1000.0 + seconds) for seconds in (59, 75)] == [
        "",
        "stuck has been at one thing for 1 min 15 s",
    ]
    stuck.busy_since = 0.0
    assert stuck.trouble(5000.0) == ""


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def monotonic(self) -> float:
        return self.now
