"""Many executions at once, beside other libraries, each with its results kept."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import rivals
from benchmarks.rounds import per_second
from benchmarks.samples import Benchmark, Plan, Sample, parts
from benchmarks.stage import Stage

OTHERS = (rivals.DRAMATIQ, rivals.RQ, rivals.HUEY, rivals.TASKIQ, rivals.ARQ)


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    """Each beside Muster, one after the other: more at once would not fit the machine's memory."""
    size = parts(plan.size, one_of=2, at_least=500)
    with stage.muster(slots=2) as muster:
        for rival in OTHERS:
            with stage.rival(rival) as other:
                parties = {f"Muster beside {rival.name}": muster, rival.name: other}
                yield from per_second(parties, size, rounds=plan.rounds)


BENCHMARK = Benchmark(
    name="bulk-others",
    title="Bulk submission, beside other libraries with results",
    measure=measure,
    notes=(
        "Two processes, or slots, each; arq has one. Results in Redis, which keeps nothing on "
        "disk; none of them keeps a history, or finds what a dead worker has left within a bounded "
        "time."
    ),
)
