"""Cancels of attempts that are not here, not here yet, or have no process yet."""

from __future__ import annotations

import os
import signal
import threading
import uuid
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.waiting import wait_until
from workers import canceller
from workers.agent import Agent


def attempt(agent: Agent, *, number: int = 1, worker_pid: int | None = None) -> Any:
    action = SimpleNamespace(runtime="python", runtime_options={})
    id = uuid.uuid4()
    made = SimpleNamespace(
        execution_id=id,
        number=number,
        key=(id, number),
        is_canceling=False,
        worker_pid=worker_pid,
        execution=SimpleNamespace(action=action),
    )
    agent.desk.claimed[made.key] = made  # type: ignore[assignment]
    return made


def test_cancel_that_comes_before_its_dispatch_is_remembered_once(agent: Agent) -> None:
    id = uuid.uuid4()
    agent.canceller.cancel((id, 2))

    assert not agent.canceller.came_early((id, 1)), "another attempt"
    assert agent.canceller.came_early((id, 2))
    assert not agent.canceller.came_early((id, 2))


def test_what_is_remembered_is_bounded(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canceller, "MOST_REMEMBERED", 3)
    ids = [uuid.uuid4() for _ in range(5)]
    for id in ids:
        agent.canceller.cancel((id, 1))
    assert [agent.canceller.came_early((id, 1)) for id in ids] == [False, False, True, True, True]


def test_attempt_without_a_process_yet_is_signalled_when_it_has_one(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[int, int]] = []
    running = attempt(agent)

    def kill(pid: int, number: int) -> None:
        sent.append((pid, number))
        agent.desk.claimed.pop(running.key)

    monkeypatch.setattr(os, "kill", kill)
    agent.canceller.cancel(running.key)
    assert running.is_canceling
    assert sent == []

    running.worker_pid = 12345
    wait_until(lambda: sent)
    assert sent == [(12345, signal.SIGTERM)]


def test_cancel_for_which_no_thread_could_be_started_is_tried_again(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = attempt(agent)

    def fail(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError, match="new thread"):
            agent.canceller.cancel(running.key)
    stopped: list[Any] = []
    monkeypatch.setattr(agent.canceller, "_stop", stopped.append)
    agent.canceller.cancel(running.key)
    wait_until(lambda: stopped == [running], seconds=10)


def test_attempt_that_no_thread_runs_yet_is_interrupted_as_soon_as_one_does(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.MUSTER = replace(settings.MUSTER, cancel_grace_seconds=60.0)
    agent = Agent(worker_id=1, capacity=2, pool_kind="thread")
    running = attempt(agent)
    asked: list[str] = []

    def interrupt(name: str) -> bool:
        asked.append(name)
        return len(asked) > 2

    monkeypatch.setattr("workers.canceller.warm.interrupt", interrupt)
    agent.canceller.cancel(running.key)

    wait_until(lambda: len(asked) > 2, seconds=10)
    agent.desk.claimed.pop(running.key)


def test_signal_for_what_has_ended_meanwhile_is_not_sent(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child may run something else by then."""
    sent: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, _: sent.append(pid))
    ended = attempt(agent, worker_pid=12345)
    agent.desk.claimed.clear()

    agent.canceller.kill(ended)

    assert sent == []
