"""Bulk submission over Procrastinate's batch defer."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import rivals
from benchmarks.rounds import per_second
from benchmarks.samples import Benchmark, Goal, Plan, Sample, parts
from benchmarks.stage import Stage


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    with (
        stage.muster(pool="prefork", slots=2) as prefork,
        stage.muster(pool="threads", slots=4) as threads,
        stage.rival(rivals.PROCRASTINATE) as procrastinate,
    ):
        parties = {
            "Muster, prefork 2": prefork,
            "Muster, threads 4": threads,
            "Procrastinate": procrastinate,
        }
        sizes = dict.fromkeys(parties, plan.size)
        sizes["Procrastinate"] = parts(plan.size, one_of=2, at_least=500)
        yield from per_second(parties, sizes, rounds=plan.rounds)


BENCHMARK = Benchmark(
    name="bulk-procrastinate",
    title="Bulk submission over Procrastinate",
    measure=measure,
    notes="Procrastinate: batch defer of 1,000, one worker of concurrency 8.",
    goals=[
        Goal(
            what="bulk over Procrastinate, prefork 2",
            subject="Muster, prefork 2",
            over="Procrastinate",
            at_least=3.0,
            stretch=4.5,
        ),
        Goal(
            what="bulk over Procrastinate, threads 4",
            subject="Muster, threads 4",
            over="Procrastinate",
            at_least=3.0,
            stretch=4.5,
        ),
    ],
)
