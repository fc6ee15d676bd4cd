"""Bulk submission over raw Celery, which keeps track of nothing."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import rivals
from benchmarks.rounds import per_second
from benchmarks.samples import Benchmark, Goal, Plan, Sample
from benchmarks.stage import Stage
from orchestrator.core.isolation import TRUSTED


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    with (
        stage.muster(pool="prefork", slots=2) as prefork,
        stage.muster(pool="threads", slots=4) as threads,
        stage.muster(pool="prefork", slots=2, least_isolation=TRUSTED) as trusted,
        stage.rival(rivals.BY_HAND) as by_hand,
        stage.rival(rivals.RAW_CELERY) as celery,
    ):
        parties = {
            "Muster, prefork 2": prefork,
            "Muster, threads 4": threads,
            "Muster, prefork 2, trusted": trusted,
            "By hand": by_hand,
            "Celery": celery,
        }
        yield from per_second(parties, plan.size, rounds=plan.rounds)


BENCHMARK = Benchmark(
    name="bulk-celery",
    title="Bulk submission, tracked, over raw Celery, untracked",
    measure=measure,
    notes=(
        "Celery: prefork 2, acks_late, prefetch multiplier 64, no results, no confirms. By hand: "
        "the same, with a row and its history committed when it is accepted, claimed and ended. "
        "Trusted: the action runs in the pool's process, as Celery's tasks do; else in one beside "
        "it, without the worker's memory and connections."
    ),
    goals=[
        Goal(
            what="bulk over raw Celery, prefork 2",
            subject="Muster, prefork 2",
            over="Celery",
            at_least=1.0,
            stretch=1.3,
        ),
        Goal(
            what="bulk over raw Celery, prefork 2, trusted",
            subject="Muster, prefork 2, trusted",
            over="Celery",
            at_least=1.0,
            stretch=1.3,
        ),
        Goal(
            what="bulk over raw Celery, threads 4",
            subject="Muster, threads 4",
            over="Celery",
            at_least=1.3,
            stretch=1.5,
        ),
    ],
)
