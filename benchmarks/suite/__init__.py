"""The benchmarks, one module each, in the order in which they run."""

from __future__ import annotations

from benchmarks.samples import Benchmark
from benchmarks.suite import bulk_celery, embedded, idle_end, idle_start

ALL: list[Benchmark] = [
    bulk_celery.BENCHMARK,
    idle_start.BENCHMARK,
    idle_end.BENCHMARK,
    embedded.BENCHMARK,
]
