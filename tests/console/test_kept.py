"""What is the same for everybody is read once, by one thread for all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from orchestrator.console import kept


class Reads:
    """Counts how often it was read; every answer is another one."""

    def __init__(self, wait: Callable[[], object] = lambda: None) -> None:
        self.number = 0
        self.wait = wait

    def __call__(self) -> int:
        self.wait()
        self.number += 1
        return self.number


def test_who_asks_while_it_is_read_waits_for_that_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "WAIT_SECONDS", 60)
    monkeypatch.setattr(kept, "KEPT_SECONDS", 60)
    begun, may_end = threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        assert may_end.wait(10)

    read = Reads(slow)
    with ThreadPoolExecutor(5) as threads:
        first = threads.submit(kept.for_all, "x", read)
        assert begun.wait(10)
        others = [threads.submit(kept.for_all, "x", read) for _ in range(4)]
        assert kept.for_all("y", lambda: "nobody waits for another name") != ""
        may_end.set()
        assert [each.result(10) for each in (first, *others)] == [1] * 5
    assert read.number == 1


def test_nobody_waits_long_for_who_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "WAIT_SECONDS", 0.01)
    begun, may_end = threading.Event(), threading.Event()

    def stuck() -> str:
        begun.set()
        assert may_end.wait(10)
        return "late"

    with ThreadPoolExecutor(1) as threads:
        late = threads.submit(kept.for_all, "x", stuck)
        assert begun.wait(10)
        assert kept.for_all("x", lambda: "mine") == "mine"
        may_end.set()
        assert late.result(10) == "late"


def test_it_is_read_again_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Reads()
    assert [kept.for_all("x", read) for _ in range(2)] == [1, 1]
    at = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: at + kept.KEPT_SECONDS + 1)
    assert kept.for_all("x", read) == 2


def test_what_could_not_be_read_is_not_kept() -> None:
    with pytest.raises(ZeroDivisionError):
        kept.for_all("x", lambda: 1 // 0)
    assert kept.for_all("x", lambda: "next") == "next"


def test_what_changed_while_it_was_read_is_read_again() -> None:
    read = Reads(lambda: kept.forget("x"))
    assert kept.for_all("x", read) == 1
    assert kept.for_all("x", read) == 2


def test_no_more_is_kept_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST", 2)
    read = Reads()
    assert [kept.for_all(name, read) for name in "abab"] == [1, 2, 1, 2]
    assert [kept.for_all(name, read) for name in "ccab"] == [3, 4, 1, 2]
    at = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: at + kept.KEPT_SECONDS + 1)
    assert [kept.for_all(name, read) for name in "cc"] == [5, 5]
