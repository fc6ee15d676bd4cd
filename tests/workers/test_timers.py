"""The timers of a loop: what is cancelled goes, and the rest fires as before."""

from __future__ import annotations

import time

from kombu.asynchronous.timer import Timer

from workers.timers import WORTH_IT, Timers


def fire_all(timer: Timer) -> None:
    for _, entry in timer:
        if entry is None:
            return
        timer.apply_entry(entry)


def test_cancelled_timers_go_and_the_others_fire_in_their_order() -> None:
    timer = Timer()
    fired: list[int] = []
    timers = Timers(timer)
    now = time.monotonic()
    soon = [timer.call_at(now - n, fired.append, (n,)) for n in range(5)]
    done = [timer.call_after(600, fired.append, (-1,)) for _ in range(WORTH_IT)]
    for entry in done[1:]:
        entry.cancel()
    soon[1].cancel()
    timers.tidy()
    assert len(timer) == 5, "four that are due, and one that is not over"
    fire_all(timer)
    assert fired == [4, 3, 2, 0]
    done[0].cancel()  # its entry is the one that was given out
    timers._left = -WORTH_IT
    timers.tidy()
    assert len(timer) == 0


def test_many_that_run_are_not_sorted_each_time() -> None:
    timer = Timer()
    timers = Timers(timer)
    for _ in range(WORTH_IT):
        timer.call_after(600, print)
    timers.tidy()
    before = timer._queue[:]
    timer.call_after(600, print).cancel()
    timers.tidy()
    assert len(timer) == len(before) + 1


def test_repeated_call_goes_on() -> None:
    timer = Timer()
    calls: list[int] = []
    timers = Timers(timer)
    entry = timer.call_repeatedly(0.005, calls.append, (1,))
    for _ in range(3):
        timers._left = -WORTH_IT
        timers.tidy()
        time.sleep(0.006)
        before = len(calls)
        fire_all(timer)
        assert len(calls) > before
    assert not entry.canceled
