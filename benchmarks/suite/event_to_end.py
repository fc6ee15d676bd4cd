"""From events to completed executions, over the same executions requested in bulk."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.samples import Benchmark, Goal, Plan, Sample
from benchmarks.stage import SLOWEST_PER_SECOND, Muster, Stage

RULES = 10
EVENTS, BULK = "events", "executions in bulk"


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    with stage.muster(slots=2) as muster:
        muster.remote.call("install_alert_rules", rules_count=RULES)
        muster.warm_up()
        _per_second(muster, 300)
        for number in range(1, plan.rounds + 1):
            yield Sample(BULK, number, muster.per_second(plan.size), "executions/s")
            yield Sample(EVENTS, number, _per_second(muster, plan.size), "executions/s")


def _per_second(muster: Muster, count: int) -> float:
    """From the first report to the last end of an execution that can be seen."""
    muster.begin()
    started = time.monotonic()
    muster.remote.call("record_events", count=count, kinds=RULES)
    patience = 30 + count / SLOWEST_PER_SECOND
    ended: float = muster.remote.call("wait_for_answers", within_seconds=patience)
    muster.check(count)
    muster.remote.call("check_answers", count=count)
    return count / (ended - started)


BENCHMARK = Benchmark(
    name="event-to-end",
    title="From an event to its completed execution",
    measure=measure,
    notes=(
        f"{RULES} rules, of which each event matches one; actions that do nothing, 2 slots. Over "
        "the same number of executions that are requested in bulk, in turns."
    ),
    goals=[
        Goal(
            what="events to completed executions, over executions in bulk",
            subject=EVENTS,
            over=BULK,
            at_least=0.5,
        )
    ],
)
