"""The time until an execution is over, in the database, on an idle system."""

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
    ):
        parties = {"Muster": muster, "By hand": by_hand}
        yield from one_at_a_time(parties, "ends", count=count, rounds=plan.rounds)


BENCHMARK = Benchmark(
    name="idle-end",
    title="Idle: from the request to the terminal status, committed",
    measure=measure,
    notes=(
        "Two slots; requested, scheduled, claimed and completed: three or four durable commits. By "
        "hand: three, as in `bulk-celery`. A trigger tells both of the end."
    ),
    goals=[Goal(what="idle end, p50", subject="Muster, p50", unit="ms", at_most=6.0)],
)
