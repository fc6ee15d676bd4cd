"""One request an execution, from four clients at once, over DBOS."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import rivals
from benchmarks.rounds import per_second
from benchmarks.samples import Benchmark, Goal, Plan, Sample, parts
from benchmarks.stage import Stage

CLIENTS = 4


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    with (
        stage.muster(slots=2) as muster,
        stage.rival(rivals.BY_HAND) as by_hand,
        stage.rival(rivals.DBOS) as dbos,
    ):
        parties = {"Muster": muster, "By hand": by_hand, "DBOS": dbos}
        size = parts(plan.size, one_of=4, at_least=200)
        yield from per_second(parties, size, rounds=plan.rounds, bulk=False, clients=CLIENTS)


BENCHMARK = Benchmark(
    name="singly-dbos",
    title="One by one from 4 clients, over DBOS",
    measure=measure,
    notes=(
        "DBOS: 4 enqueuers (processes), its queue polled each 50 ms, 8 threads. By hand: as in "
        "`bulk-celery`."
    ),
    goals=[
        Goal(
            what="one by one, 4 clients, over DBOS",
            subject="Muster",
            over="DBOS",
            at_least=1.0,
        )
    ],
)
