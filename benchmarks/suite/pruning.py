"""Throughput while old rows are removed, without a pause."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.remote import BenchmarkError
from benchmarks.samples import Benchmark, Goal, Plan, Sample
from benchmarks.stage import Stage

KEEPS, PRUNES = "keeps all", "prunes all the time"
ROWS_PER_EXECUTION = 4
"""The execution, and its history."""

YOUNG_DAYS = 0.05
"""Of the copies, which are 0.2 s apart, all but 21,600 are older."""


FEWEST_COPIES = 100_000
"""For a run that only shows that it works: with fewer, nearly none is old."""


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    count = max(50 * plan.size, FEWEST_COPIES)
    with (
        stage.muster(slots=2, keep_executions_days="inf") as keeps,
        # a tick takes five seconds, and the watchdog's next comes after one and a half intervals
        stage.muster(slots=2, keep_executions_days=YOUNG_DAYS, prune_interval_seconds=1) as prunes,
    ):
        parties = {KEEPS: keeps, PRUNES: prunes}
        for party in parties.values():
            party.warm_up()
        for number in range(1, plan.rounds + 1):
            for subject, party in parties.items():
                party.begin()
                party.keeps = True
                party.remote.call("submit", count=1, bulk=False)
                party.remote.call("wait", count=1, within_seconds=60)
                party.remote.call("fill", count=count)
                before = party.remote.call("old_executions")
                value = party.per_second(plan.size)
                removed = before - party.remote.call("old_executions")
                party.keeps = False
                if (removed > 0) is not (party is prunes):
                    raise BenchmarkError(f"{subject}: {removed:,} of {before:,} were removed")
                yield Sample(subject, number, value, "executions/s")
                if party is prunes:
                    each = removed * ROWS_PER_EXECUTION * value / plan.size
                    yield Sample("removed meanwhile", number, each, "rows/s")


BENCHMARK = Benchmark(
    name="pruning",
    title="Throughput while old rows are removed",
    measure=measure,
    notes=(
        "Two installations with a million old rows. One removes them all the time; by default it "
        "would be five seconds of each minute, which costs a twelfth of the difference."
    ),
    goals=[
        Goal(what="bulk while pruning", subject=PRUNES, over=KEEPS, at_least=0.9),
    ],
)
