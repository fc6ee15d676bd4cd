"""How soon one task message is answered, on an idle system."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.samples import Benchmark, Goal, Plan, Sample, parts, percentile
from benchmarks.stage import Stage


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    count = parts(plan.size, one_of=25)
    with stage.gate(slots=2) as muster:
        muster.warm_up()
        for number in range(1, plan.rounds + 1):
            muster.begin()
            times_ms = muster.remote.call("answer_times_ms", count=count)
            yield Sample("Muster's gate, p50", number, percentile(times_ms, 50), "ms")
            yield Sample("Muster's gate, p99", number, percentile(times_ms, 99), "ms")


BENCHMARK = Benchmark(
    name="gates-idle",
    title="Idle: from the publication of a task message to its answer",
    measure=measure,
    notes="Prefork 2, a classic queue; four durable commits and the answer's confirm.",
    goals=[
        Goal(what="idle answer, p50", subject="Muster's gate, p50", unit="ms", at_most=15.0),
        Goal(what="idle answer, p99", subject="Muster's gate, p99", unit="ms", at_most=25.0),
    ],
)
