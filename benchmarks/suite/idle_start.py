"""The time until an action starts on an idle system, over raw Celery."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import rivals
from benchmarks.rounds import one_at_a_time
from benchmarks.samples import Benchmark, Goal, Plan, Sample, parts
from benchmarks.stage import Stage


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    count = parts(plan.size, one_of=25)
    with (
        stage.muster(slots=2) as muster,
        stage.rival(rivals.BY_HAND) as by_hand,
        stage.rival(rivals.RAW_CELERY) as celery,
    ):
        parties = {"Muster": muster, "By hand": by_hand, "Celery": celery}
        yield from one_at_a_time(parties, "starts", count=count, rounds=plan.rounds)


BENCHMARK = Benchmark(
    name="idle-start",
    title="Idle: from the request to the start of the action",
    measure=measure,
    notes=(
        "Two slots, the others prefork 2; one at a time, 20 to 40 ms apart. By hand: raw Celery, "
        "with a row and its history committed at acceptance and at the claim."
    ),
    goals=[
        Goal(
            what="idle start, p50 over raw Celery's",
            subject="Muster, p50",
            over="Celery, p50",
            at_most=3.0,
        ),
        Goal(what="idle start, p99", subject="Muster, p99", unit="ms", at_most=10.0),
    ],
)
