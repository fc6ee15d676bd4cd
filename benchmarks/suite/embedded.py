"""The embedded default: SQLite and a broker in a SQLite file, nothing else."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.rounds import per_second
from benchmarks.samples import Benchmark, Goal, Plan, Sample, parts
from benchmarks.stage import Stage


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    with (
        stage.muster(embedded=True, pool="prefork", slots=4) as prefork,
        stage.muster(embedded=True, pool="threads", slots=4) as threads,
    ):
        parties = {"prefork 4": prefork, "threads 4": threads}
        yield from per_second(parties, parts(plan.size, one_of=5), rounds=plan.rounds)


BENCHMARK = Benchmark(
    name="embedded",
    title="Embedded, bulk submission, 4 slots",
    measure=measure,
    goals=[
        Goal(what="embedded, prefork 4", subject="prefork 4", unit="/s", at_least=1_000),
        Goal(what="embedded, threads 4", subject="threads 4", unit="/s", at_least=1_000),
    ],
)
