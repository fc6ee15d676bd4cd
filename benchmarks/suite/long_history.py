"""Throughput with a million executions behind it, over throughput on an empty table."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.rounds import per_second
from benchmarks.samples import Benchmark, Goal, Plan, Sample
from benchmarks.stage import Stage

MANY = 1_000_000
A_FEW = 100_000
"""For a run that only shows that it works."""


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    with (
        stage.muster(pool="prefork", slots=2) as empty,
        stage.muster(pool="prefork", slots=2) as full,
    ):
        full.remote.call("fill", count=MANY if plan.size >= Plan().size else A_FEW)
        full.keeps = True
        parties = {"empty table": empty, "long history": full}
        yield from per_second(parties, plan.size, rounds=plan.rounds)


BENCHMARK = Benchmark(
    name="long-history",
    title="Throughput with a long history, over an empty table",
    measure=measure,
    notes=(
        "1 million terminal executions with three history rows each (100,000 where the size is "
        "smaller than the default); bulk, prefork 2."
    ),
    goals=[
        Goal(
            what="throughput, 1 million rows over empty",
            subject="long history",
            over="empty table",
            at_least=0.85,
        )
    ],
)
