"""SIGTERM stops an action, and leaves the pool child that launched it as it was."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import wait_until
from tests.workers.helpers import python, sh
from workers import child


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Path]:
    """A file that an action makes when it has started: SIGTERM to this process follows."""
    started = tmp_path / "started"

    def stop() -> None:
        wait_until(started.exists)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=stop)
    thread.start()
    yield started
    thread.join()


@pytest.mark.parametrize("kind", ["process", "trusted", "shell"])
def test_action_is_interrupted_and_the_child_goes_on(kind: str, started: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    call = sh(f"touch {started}; sleep 30")
    if kind != "shell":
        call = python("spin", parameters={"started": str(started)}, isolation=kind)

    outcome = child.run(call)

    assert outcome.reason == "cancelled_running"
    assert outcome.event == "fail"
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_comes_to_its_slot_too_late_does_not_begin(tmp_path: Path) -> None:
    began = tmp_path / "began"
    in_time = dataclasses.replace(sh(f"touch {began}"), begin_by=time.monotonic() + 60)
    late = dataclasses.replace(in_time, begin_by=time.monotonic() - 0.001)

    assert child.run(late).reason == "given_back"
    assert not began.exists()
    assert child.run(in_time).reason == "succeeded"
    assert began.exists()


@pytest.mark.parametrize("isolation", ["process", "trusted"])
def test_action_may_tidy_up(isolation: str, started: Path) -> None:
    tidied = started.with_name("tidied")
    parameters = {"started": str(started), "tidied": str(tidied)}
    # it has the time for that: a busy machine takes longer than the default grace of these tests
    outcome = child.run(
        python(
            "spin_and_tidy", parameters=parameters, isolation=isolation, cancel_grace_seconds=5.0
        )
    )
    assert outcome.reason == "cancelled_running"
    assert tidied.exists()


def test_what_goes_wrong_when_an_interrupted_action_is_ended_is_reported(
    started: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool of threads would report nothing, and lack the slot."""

    def no_more_files(*_: object, **__: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("workers.child.processes.terminate", no_more_files)
    outcome = child.run(python("spin", parameters={"started": str(started)}))
    assert (outcome.event, outcome.reason) == ("fail", "action_failed")
    assert "Too many open files" in outcome.result["message"]
