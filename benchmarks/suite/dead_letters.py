"""The speed at which dead letters become failed executions and entries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.samples import Benchmark, Goal, Plan, Sample
from benchmarks.stage import Stage

# the shortest that the settings allow: a TTL of one staleness window
SOON_EXPIRED: dict[str, Any] = {
    "heartbeat_interval_seconds": 0.5,
    "staleness_multiplier": 2,
    "worker_queue_ttl_ms": 1_000,
}


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    with stage.muster(slots=0, **SOON_EXPIRED) as muster:
        muster.remote.call("dead_letters_per_second", count=200)
        for number in range(1, plan.rounds + 1):
            value = muster.remote.call("dead_letters_per_second", count=plan.size)
            yield Sample("drain", number, value, "executions/s")


BENCHMARK = Benchmark(
    name="dead-letters",
    title="Draining dead letters",
    measure=measure,
    notes=(
        "Executions whose messages expired in a worker's queue, up to 32 in one; one drain, from "
        "its connection to the quiet moment (0.2 s) after which it takes the queue for empty."
    ),
    goals=[Goal(what="DLQ drain", subject="drain", unit="/s", at_least=2_500)],
)
