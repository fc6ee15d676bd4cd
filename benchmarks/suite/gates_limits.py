"""The cost of limits of queues for those that do not reach them."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.samples import Benchmark, Goal, Plan, Sample, parts
from benchmarks.stage import Stage

FREE, LIMITED, BESIDE = "no limit", "a limit not reached", "beside an exhausted queue"
FAR = 100_000


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    size = parts(plan.size, one_of=2, at_least=500)
    with stage.gate(slots=2) as muster:
        muster.warm_up()
        for number in range(1, plan.rounds + 1):
            for subject in (FREE, LIMITED, BESIDE):
                muster.remote.call("limit", max_running=FAR if subject == LIMITED else None)
                muster.beside = size if subject == BESIDE else 0
                yield Sample(subject, number, muster.per_second(size), "executions/s")


BENCHMARK = Benchmark(
    name="gates-limits",
    title="Limits that are not reached, and a queue beside that is exhausted",
    measure=measure,
    notes="Through a gate, 2 slots. The exhausted queue has as many executions that wait.",
    goals=[
        Goal(what="limit not reached", subject=LIMITED, over=FREE, at_least=0.85),
        Goal(what="beside an exhausted queue", subject=BESIDE, over=FREE, at_least=0.95),
    ],
)
