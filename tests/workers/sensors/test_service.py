"""The main thread of a sensor service: it fires timers until a signal comes, whatever happens."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest

from workers import processes
from workers.sensors import service, ticking


def test_timers_are_fired_again_after_any_error(monkeypatch: pytest.MonkeyPatch) -> None:
    stopping = threading.Event()
    turns: list[None] = []

    def fire(**_: Any) -> int:
        turns.append(None)
        if len(turns) == 2:
            stopping.set()
        raise ValueError("what nobody expects")

    monkeypatch.setattr(ticking, "LONGEST_SLEEP_SECONDS", 0.0)
    for name in ("close_old_connections", "connections.close_all", "clock.now"):
        monkeypatch.setattr(f"workers.sensors.ticking.{name}", lambda: None)
    monkeypatch.setattr("workers.sensors.ticking.timers.fire_due", fire)
    ticking.fire_until(stopping)
    assert len(turns) == 2


def test_service_that_fails_leaves_no_thread_that_keeps_its_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story: list[str] = []

    class Supervisor:
        def __init__(self, name: str, labels: Any) -> None: ...

        def start(self) -> None:
            story.append("start")

        def stop(self) -> None:
            story.append("stop")

    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setenv(processes.WORKER_TOKEN, "")
    monkeypatch.setattr(service, "Supervisor", Supervisor)
    monkeypatch.setattr(service, "_start_sentinel", lambda: None)
    monkeypatch.setattr("workers.sensors.service.database.wait_until_reachable", lambda: None)
    monkeypatch.setattr("workers.sensors.service.work_dirs.remove_left", lambda: None)
    monkeypatch.setattr(ticking, "fire_until", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        service.run("s1", {})
    assert story == ["start", "stop"]
