"""Quorum queues, which write each message to the disks of a majority, beside classic ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from benchmarks.rounds import per_second
from benchmarks.samples import Benchmark, Plan, Sample
from benchmarks.stage import Stage
from settings.muster import QUEUE_TYPES


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    with ExitStack() as held:
        parties = {
            f"{kind} queues": held.enter_context(stage.muster(slots=4, queue_type=kind))
            for kind in QUEUE_TYPES
        }
        yield from per_second(parties, plan.size, rounds=plan.rounds)


BENCHMARK = Benchmark(
    name="queue-types",
    title="Classic and quorum queues, bulk, 4 slots",
    measure=measure,
    notes="`MUSTER_QUEUE_TYPE`, with one node of RabbitMQ; of several a majority writes messages.",
)
