"""How soon an execution is over, in the database, on an idle system."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.samples import Benchmark, Goal, Plan, Sample, parts, percentile
from benchmarks.stage import Stage


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    count = parts(plan.size, one_of=25)
    with stage.muster(pool="prefork", slots=2) as muster:
        muster.warm_up()
        for number in range(1, plan.rounds + 1):
            muster.begin()
            times_ms = muster.remote.call("ends", count=count)
            muster.check(count)
            yield Sample("Muster, p50", number, percentile(times_ms, 50), "ms")
            yield Sample("Muster, p99", number, percentile(times_ms, 99), "ms")


BENCHMARK = Benchmark(
    name="idle-end",
    title="Idle: from the request to the terminal status, committed",
    measure=measure,
    notes="Prefork 2; requested, scheduled, claimed and completed: four durable commits.",
    goals=[Goal(what="idle end, p50", subject="Muster, p50", unit="ms", at_most=6.0)],
)
