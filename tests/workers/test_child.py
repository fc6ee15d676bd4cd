"""SIGTERM stops an action, and leaves the pool child that ran it as it was."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from tests.workers.helpers import python, sh
from workers import child


@pytest.fixture(autouse=True)
def told_to_stop() -> object:
    """SIGTERM to this process while the action runs."""
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    yield
    timer.join()


@pytest.mark.parametrize("call", [python("spin"), sh("sleep 30")], ids=["python", "shell"])
def test_action_is_interrupted_and_the_child_goes_on(call: object) -> None:
    before = signal.getsignal(signal.SIGTERM)

    outcome = child.run(call)  # type: ignore[arg-type]

    assert outcome.reason == "cancelled_running"
    assert outcome.event == "fail"
    assert signal.getsignal(signal.SIGTERM) is before


def test_action_may_tidy_up(tmp_path: object) -> None:
    tidied = f"{tmp_path}/tidied"
    outcome = child.run(python("spin_and_tidy", parameters={"tidied": tidied}))
    assert outcome.reason == "cancelled_running"
    assert os.path.exists(tidied)
