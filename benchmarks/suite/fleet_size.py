"""The cost of scheduling, with 10, 100 and 1,000 workers registered."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import rivals
from benchmarks.samples import Benchmark, Goal, Plan, Sample
from benchmarks.stage import Stage

FLEETS = (10, 100, 1_000)


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    with stage.muster(slots=0) as muster, stage.rival(rivals.BY_HAND) as by_hand:
        for workers in FLEETS:
            muster.remote.call("schedule_cost_ms", workers=workers, count=250)
            by_hand.remote.call("schedule_cost_ms", workers=workers, count=250)
        for number in range(1, plan.rounds + 1):
            for workers in FLEETS:
                elapsed, processor = muster.remote.call(
                    "schedule_cost_ms", workers=workers, count=plan.size
                )
                yield Sample(f"{workers:,} workers", number, elapsed, "ms/execution")
                yield Sample(f"{workers:,} workers, CPU", number, processor, "ms/execution")
                alone = by_hand.remote.call("schedule_cost_ms", workers=workers, count=plan.size)
                yield Sample(f"{workers:,} workers, by hand", number, alone, "ms/execution")


BENCHMARK = Benchmark(
    name="fleet-size",
    title="Schedule cost by the number of workers registered",
    measure=measure,
    notes=(
        "Batches as in an executor: choose, one statement, messages to as many queues as there "
        "are workers, confirmed. By the clock, and of the executor's own processor time. By hand: "
        "one statement and the same messages, which nobody chooses a worker for."
    ),
    goals=[
        Goal(
            what=f"schedule cost, {workers:,} workers over 10",
            subject=f"{workers:,} workers",
            over="10 workers",
            at_most=1.2,
        )
        for workers in FLEETS[1:]
    ],
)
