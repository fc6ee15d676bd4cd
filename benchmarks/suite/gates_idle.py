"""The time until one task message is answered, on an idle system."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import rivals
from benchmarks.rounds import one_at_a_time
from benchmarks.samples import Benchmark, Goal, Plan, Sample, parts
from benchmarks.stage import Party, Stage


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    count = parts(plan.size, one_of=25)
    with stage.gate(slots=2) as muster, stage.rival(rivals.GATE_BY_HAND) as by_hand:
        parties: dict[str, Party] = {"Muster's gate": muster, "Gate by hand": by_hand}
        yield from one_at_a_time(parties, "answer_times_ms", count=count, rounds=plan.rounds)


BENCHMARK = Benchmark(
    name="gates-idle",
    title="Idle: from the publication of a task message to its answer",
    measure=measure,
    notes="2 slots, a classic queue; four durable commits and the answer's confirm, in each.",
    goals=[
        Goal(what="idle answer, p50", subject="Muster's gate, p50", unit="ms", at_most=15.0),
        Goal(what="idle answer, p99", subject="Muster's gate, p99", unit="ms", at_most=25.0),
    ],
)
