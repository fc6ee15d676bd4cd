"""How soon an execution is over, in the database, on an idle system."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import rivals
from benchmarks.samples import Benchmark, Goal, Plan, Sample, parts, percentile
from benchmarks.stage import Stage


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    count = parts(plan.size, one_of=25)
    with (
        stage.muster(pool="prefork", slots=2) as muster,
        stage.rival(rivals.BY_HAND) as by_hand,
    ):
        parties = {"Muster": muster, "By hand": by_hand}
        for party in parties.values():
            party.warm_up()
        for number in range(1, plan.rounds + 1):
            for subject, party in parties.items():
                with party.turn():
                    party.begin()
                    times_ms = party.remote.call("ends", count=count)
                if party is muster:
                    party.check(count)
                yield Sample(f"{subject}, p50", number, percentile(times_ms, 50), "ms")
                yield Sample(f"{subject}, p99", number, percentile(times_ms, 99), "ms")


BENCHMARK = Benchmark(
    name="idle-end",
    title="Idle: from the request to the terminal status, committed",
    measure=measure,
    notes=(
        "Prefork 2; requested, scheduled, claimed and completed: three or four durable commits. By "
        "hand: three, as in `bulk-celery`. A trigger tells both of the end."
    ),
    goals=[Goal(what="idle end, p50", subject="Muster, p50", unit="ms", at_most=6.0)],
)
