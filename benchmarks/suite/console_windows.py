"""The cost of open windows of the console for the work beside them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

from benchmarks.remote import BenchmarkError, Remote
from benchmarks.samples import Benchmark, Goal, Plan, Sample
from benchmarks.stage import Muster, Stage
from benchmarks.suite.console import LINGER_SECONDS, NOW, SETTLE_SECONDS, opened

WINDOWS = 10
LONGER = 4
"""Times a usual run: windows ask once a second, and a usual run takes only three."""
FEWEST_ROUNDS = 5
WITH, WITHOUT = "ten windows open", "no window open"


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    with stage.muster(slots=2) as party, opened(party) as load:
        party.warm_up()
        turns: list[tuple[str, Callable[[], AbstractContextManager[None]]]] = [
            (WITHOUT, nullcontext),
            (WITH, partial(_windows, party, load)),
        ]
        for number in range(1, max(plan.rounds, FEWEST_ROUNDS) + 1):
            for subject, turn in turns:
                with turn():
                    value = party.per_second(LONGER * plan.size)
                yield Sample(subject, number, value, "executions/s")
            turns.reverse()


@contextmanager
def _windows(party: Muster, load: Remote) -> Iterator[None]:
    topics = party.remote.call("topics_of", path=NOW)
    load.call("open_tabs", number=WINDOWS, topics=topics, page=NOW)
    time.sleep(SETTLE_SECONDS)
    before = load.call("counted")["answers"]
    yield
    if load.call("counted")["answers"] - before < WINDOWS:
        raise BenchmarkError("windows were open, and did not ask for what they show")
    load.call("close_tabs")
    time.sleep(LINGER_SECONDS)


BENCHMARK = Benchmark(
    name="console-windows",
    title="Bulk submission beside ten windows of the console",
    measure=measure,
    notes=(
        f"Prefork 2; without and with {WINDOWS} windows on Now, in turns. A window is a tab that "
        "asks again for its page when something moved, at most once a second. A run is "
        f"{LONGER} times as long as others."
    ),
    goals=[Goal(what="bulk with ten windows open", subject=WITH, over=WITHOUT, at_least=0.97)],
)
