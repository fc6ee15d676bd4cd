"""When a worker records ends: those of some milliseconds in one statement, fewer if it idles."""

from __future__ import annotations

import queue
import time
from types import SimpleNamespace
from typing import Any

from workers import database_threads
from workers.database_threads import Finisher


def next_gap(*, has_nothing: bool) -> float:
    """Seconds from one statement to the next."""
    desk: Any = SimpleNamespace(has_nothing=lambda: has_nothing)
    host: Any = SimpleNamespace(desk=desk)
    return Finisher(host)._next_at()


def test_worker_that_has_nothing_else_to_do_records_sooner() -> None:
    assert next_gap(has_nothing=True) < next_gap(has_nothing=False)


def test_wait_ends_when_its_time_is_moved_up() -> None:
    source: queue.Queue[int] = queue.Queue()
    source.put(1)
    began = time.monotonic()
    due = iter([began + 60, 0.0])
    assert database_threads._gather(source, not_before=lambda: next(due)) == [1]
    assert time.monotonic() - began < 30


def test_what_comes_meanwhile_is_in_the_same_batch() -> None:
    source: queue.Queue[int] = queue.Queue()
    source.put(1)

    def later() -> float:
        if source.qsize() < 2:
            source.put(2)
            source.put(3)
            return time.monotonic() + 0.001
        return 0.0

    assert database_threads._gather(source, not_before=later) == [1, 2, 3]
