"""A worker probes itself until it stops, whatever its probes come to."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from workers.agent import Agent
from workers.probes import Prober
from workers.questions import Question


def no_thread(*_: Any) -> None:
    raise RuntimeError("can't start new thread")


def test_prober_outlives_what_it_does_not_expect(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    prober, told = Prober(agent), []
    looks = iter([RuntimeError("can't start new thread"), {"disk": "it is full"}, {"disk": None}])

    def look() -> Any:
        found = next(looks)
        if isinstance(found, Exception):
            raise found
        return found

    def pause(*, is_fit: bool) -> None:
        told.append(is_fit)
        agent.is_stopping = len(told) == 3

    monkeypatch.setattr(prober, "look", look)
    monkeypatch.setattr(prober, "_pause", pause)
    monkeypatch.setattr(prober.fitness, "tell", lambda asked, failures: told.append(failures))
    monkeypatch.setattr(agent.code, "look", lambda: None)
    prober.run()
    assert told == [False, {"disk": "it is full"}, False]


def test_check_whose_thread_could_not_be_started_is_asked_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    question = Question(lambda: None)
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(RuntimeError, match="new thread"):
            question.ask()
    assert question.ask() is None
