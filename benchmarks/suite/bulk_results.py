"""Bulk submission over Celery that keeps results in PostgreSQL."""

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
        stage.rival(rivals.CELERY_RESULTS) as celery,
    ):
        parties = {
            "Muster, prefork 2": prefork,
            "Muster, threads 4": threads,
            "Celery with results": celery,
        }
        sizes = dict.fromkeys(parties, plan.size)
        sizes["Celery with results"] = parts(plan.size, one_of=2, at_least=500)
        yield from per_second(parties, sizes, rounds=plan.rounds)


BENCHMARK = Benchmark(
    name="bulk-results",
    title="Bulk submission over Celery with django-celery-results",
    measure=measure,
    notes="As raw Celery, with results in the same PostgreSQL and CELERY_DB_REUSE_MAX set.",
    goals=[
        Goal(
            what="bulk over Celery with results, prefork 2",
            subject="Muster, prefork 2",
            over="Celery with results",
            at_least=4.0,
            stretch=6.0,
        ),
        Goal(
            what="bulk over Celery with results, threads 4",
            subject="Muster, threads 4",
            over="Celery with results",
            at_least=4.0,
            stretch=6.0,
        ),
    ],
)
