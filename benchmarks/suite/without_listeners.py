"""The cost of streams for whoever does not listen."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.rounds import per_second
from benchmarks.samples import Benchmark, Goal, Plan, Sample
from benchmarks.stage import Stage

PRESENT, OFF = "streams, no listener", "nothing is told"
BARE = ("-m", "benchmarks.without_news")


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    with (
        stage.muster(slots=2) as present,
        stage.muster(slots=2, manage=BARE) as off,
    ):
        off.remote.call("tell_nobody")
        yield from per_second({PRESENT: present, OFF: off}, plan.size, rounds=plan.rounds)


BENCHMARK = Benchmark(
    name="without-listeners",
    title="Bulk submission with streams present, and no listener",
    measure=measure,
    notes=(
        "Two slots, in turns. Off: the same services, in which nothing is told after a commit, and "
        "nobody asks whether somebody listens."
    ),
    goals=[Goal(what="bulk with no listener", subject=PRESENT, over=OFF, at_least=0.98)],
)
