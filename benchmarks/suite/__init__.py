"""The benchmarks, one module each, in the order in which they run."""

from __future__ import annotations

from benchmarks.samples import Benchmark
from benchmarks.suite import (
    advance_cost,
    bulk_celery,
    bulk_others,
    bulk_procrastinate,
    bulk_results,
    dead_letters,
    embedded,
    fleet_size,
    http,
    idle_end,
    idle_start,
    long_history,
    memory,
    processor_time,
    pruning,
    singly_dbos,
    singly_procrastinate,
    steps,
)

ALL: list[Benchmark] = [
    module.BENCHMARK
    for module in (
        bulk_celery,
        bulk_results,
        bulk_procrastinate,
        bulk_others,
        singly_dbos,
        singly_procrastinate,
        http,
        idle_start,
        idle_end,
        dead_letters,
        fleet_size,
        long_history,
        pruning,
        memory,
        embedded,
        processor_time,
        advance_cost,
        steps,
    )
]
