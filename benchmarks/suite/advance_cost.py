"""The cost of advancing a task of 10, 100 and 1,000 steps, all of which are ready at once."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.samples import Benchmark, Goal, Plan, Sample
from benchmarks.stage import Stage

SIZES = (10, 100, 1_000)


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    with stage.muster(slots=0) as muster:
        muster.remote.call("install_templates", sizes=list(SIZES))
        for size in SIZES:
            muster.remote.call("advance_cost", steps=size)
        for number in range(1, plan.rounds + 1):
            for size in SIZES:
                found = muster.remote.call("advance_cost", steps=size)
                for what, value in found.items():
                    kind, unit = what.split()
                    yield Sample(f"{kind}, {size:,} steps, {unit}", number, value, unit)


BENCHMARK = Benchmark(
    name="advance-cost",
    title="Advancing a task, by the number of its steps",
    measure=measure,
    notes=(
        "`begin` creates all steps and requests an execution for each; `settle` takes in all "
        "their results and requests the step that joins them. One transaction each."
    ),
    goals=[
        Goal(
            what=f"statements of an advance ({kind}), 1,000 steps over 10",
            subject=f"{kind}, 1,000 steps, statements",
            over=f"{kind}, 10 steps, statements",
            at_most=1.0,
        )
        for kind in ("begin", "settle")
    ],
)
