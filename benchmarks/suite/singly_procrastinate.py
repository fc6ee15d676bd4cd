"""One request an execution, from a single client, over Procrastinate."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import rivals
from benchmarks.rounds import per_second
from benchmarks.samples import Benchmark, Goal, Plan, Sample, parts
from benchmarks.stage import Stage


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    with (
        stage.muster(slots=2) as muster,
        stage.rival(rivals.PROCRASTINATE) as procrastinate,
    ):
        parties = {"Muster": muster, "Procrastinate": procrastinate}
        size = parts(plan.size, one_of=4, at_least=200)
        yield from per_second(parties, size, rounds=plan.rounds, bulk=False)


BENCHMARK = Benchmark(
    name="singly-procrastinate",
    title="One by one from one client, over Procrastinate",
    measure=measure,
    notes="Procrastinate: `defer` in a loop, synchronous connector, one worker of concurrency 8.",
    goals=[
        Goal(
            what="one by one, 1 client, over Procrastinate",
            subject="Muster",
            over="Procrastinate",
            at_least=1.5,
        )
    ],
)
