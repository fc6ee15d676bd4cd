"""The cost of automation for whoever has no rule."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.rounds import per_second
from benchmarks.samples import Benchmark, Goal, Plan, Sample
from benchmarks.stage import Stage

PRESENT, OFF = "with automation, no rule", "its parts switched off"
BARE = ("-m", "benchmarks.without_automation")


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    with (
        stage.muster(slots=2) as present,
        stage.muster(slots=2, manage=BARE) as off,
    ):
        yield from per_second({PRESENT: present, OFF: off}, plan.size, rounds=plan.rounds)


BENCHMARK = Benchmark(
    name="without-rules",
    title="Bulk submission with automation present, and no rule",
    measure=measure,
    notes=(
        "Two slots, in turns. Off: the same services, started without the threads and questions "
        "that automation adds to an executor and a worker."
    ),
    goals=[Goal(what="bulk with automation and no rule", subject=PRESENT, over=OFF, at_least=0.98)],
)
