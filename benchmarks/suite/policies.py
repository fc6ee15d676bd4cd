"""The cost of policies for whoever has none, and the speed at which the places of one hot bucket
are filled."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.rounds import per_second
from benchmarks.samples import Benchmark, Goal, Plan, Sample, parts
from benchmarks.stage import Stage

NONE, OFF, HOT = "no policy", "policies switched off", "one bucket, 10 at once"
BARE = ("-m", "benchmarks.without_policies")
LIMIT = 10


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    with (
        stage.muster(slots=2) as none,
        stage.muster(slots=2, manage=BARE) as off,
        stage.muster(slots=LIMIT) as hot,
    ):
        hot.remote.call("limit", most=LIMIT)
        sizes = {NONE: plan.size, OFF: plan.size, HOT: parts(plan.size, one_of=4, at_least=500)}
        yield from per_second({NONE: none, OFF: off, HOT: hot}, sizes, rounds=plan.rounds)


BENCHMARK = Benchmark(
    name="policies",
    title="Bulk submission with and without policies",
    measure=measure,
    notes=(
        "In turns. Off: the same services, started without asking for policies. The bucket: a "
        "policy of ten at once over everything, and a worker of ten threads; what is counted is "
        "the whole way of each execution, from its place in line to its end."
    ),
    goals=[
        Goal(what="bulk without a policy", subject=NONE, over=OFF, at_least=0.98),
        Goal(what="starts of one bucket", subject=HOT, unit="executions/s", at_least=300),
    ],
)
