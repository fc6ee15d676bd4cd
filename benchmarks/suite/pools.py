"""A worker's pool of threads, which is the default, beside one of processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from benchmarks.rounds import per_second
from benchmarks.samples import Benchmark, Plan, Sample
from benchmarks.stage import Stage
from benchmarks.suite.memory import unique_mb

POOLS = [(pool, slots) for slots in (2, 4, 8) for pool in ("prefork", "threads")]


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    with ExitStack() as held:
        parties = {
            f"{pool} {slots}": held.enter_context(stage.muster(pool=pool, slots=slots))
            for pool, slots in POOLS
        }
        yield from per_second(parties, plan.size, rounds=plan.rounds)
        for subject, party in parties.items():
            yield Sample(f"{subject}, its worker", 1, unique_mb(party, "worker"), "MB")


BENCHMARK = Benchmark(
    name="pools",
    title="Threads or processes that start actions, bulk",
    measure=measure,
    notes=(
        "The number is that of slots. Memory: unique set size of the worker after the last round, "
        "with its children and the warm processes of its actions."
    ),
)
