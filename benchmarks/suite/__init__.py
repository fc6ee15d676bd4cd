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
    event_to_end,
    events,
    fleet_size,
    gates,
    gates_idle,
    gates_limits,
    http,
    idle_end,
    idle_start,
    long_history,
    memory,
    pages,
    processor_time,
    pruning,
    rulebook,
    singly_dbos,
    singly_procrastinate,
    steps,
    timers,
    without_rules,
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
        pages,
        memory,
        embedded,
        processor_time,
        advance_cost,
        steps,
        rulebook,
        events,
        event_to_end,
        timers,
        without_rules,
        gates,
        gates_idle,
        gates_limits,
    )
]
ALL.insert(1 + ALL.index(gates.BENCHMARK), gates.OTHERS_BENCHMARK)
