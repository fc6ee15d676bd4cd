"""Events through each stage: recorded, matched, requested."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.samples import Benchmark, Goal, Plan, Sample
from benchmarks.stage import Stage

RULES = 10
SUBJECTS = {
    "recorded": "recorded in bulk",
    "matched": "recorded to enforcement",
    "requested": "enforcement to requested execution",
}


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    with stage.muster(slots=0) as muster:
        muster.remote.call("install_alert_rules", rules_count=RULES)
        muster.remote.call("stages_per_second", count=500, kinds=RULES)
        for number in range(1, plan.rounds + 1):
            muster.begin()
            rates = muster.remote.call("stages_per_second", count=plan.size, kinds=RULES)
            for name, subject in SUBJECTS.items():
                yield Sample(subject, number, rates[name], "events/s")


BENCHMARK = Benchmark(
    name="events",
    title="Events through each stage",
    measure=measure,
    notes=(
        f"{RULES} rules on one trigger, of which each event matches one. Each stage by itself, in "
        "one process, in batches as in an executor, with its messages sent and confirmed; events "
        "have keys and a schema, and are reported 1,000 at a time."
    ),
    goals=[
        Goal(
            what="events recorded in bulk",
            subject=SUBJECTS["recorded"],
            unit="events/s",
            at_least=3_000,
        ),
        Goal(
            what="recorded to enforcement, 1 of 10 rules matches",
            subject=SUBJECTS["matched"],
            unit="events/s",
            at_least=1_500,
        ),
    ],
)
