"""The memory of each service at rest and after load, and whether it grows with what has passed."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.samples import Benchmark, Goal, Plan, Sample
from benchmarks.stage import Muster, Stage
from tests.servers import free_port

SERVICES = ("executor", "worker", "api")
MB = 1e6
SETTLED_AFTER = 2


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    """The growth is counted from the end of the second round: by then pools and caches are full,
    and children have pages of their own."""
    with stage.muster(slots=2) as muster:
        port = free_port()
        muster.start("api", "manage.py", "api", "--port", str(port))
        muster.listening("api", port)
        at_rest = {name: unique_mb(muster, name) for name in SERVICES}
        settled: dict[str, float] = {}
        for number in range(1, plan.rounds + 1):
            for name, value in at_rest.items():
                yield Sample(f"{name}, at rest", number, value, "MB")
            for bulk, size in ((True, plan.size), (False, plan.size // 10)):
                muster.per_second(size, bulk=bulk)
            for name in SERVICES:
                now = unique_mb(muster, name)
                yield Sample(f"{name}, after load", number, now, "MB")
                if number <= SETTLED_AFTER:
                    settled[name] = now
                    continue
                passed = (number - SETTLED_AFTER) * (plan.size + plan.size // 10)
                growth = (now - settled[name]) / passed * 1e6
                yield Sample(f"{name}, growth", number, growth, "MB per 10^6")


def unique_mb(muster: Muster, name: str) -> float:
    """The memory that a service would give back if it ended, with its children."""
    total: float = sum(each.memory_full_info().uss for each in muster.tree(name))
    return total / MB


BENCHMARK = Benchmark(
    name="memory",
    title="Memory of the services",
    measure=measure,
    notes=(
        "Unique set size of each service with its children: one API process that only waits, a "
        "worker with two slots and their warm processes. Growth is counted from the end "
        'of the second round; for a million executions `make bench ARGS="memory --size 330000"`.'
    ),
    goals=[
        Goal(what="executor at rest", subject="executor, at rest", unit="MB", at_most=120.0),
        Goal(what="executor after load", subject="executor, after load", unit="MB", at_most=200.0),
        Goal(what="worker after load", subject="worker, after load", unit="MB", at_most=300.0),
        Goal(
            what="growth of the executor",
            subject="executor, growth",
            unit="MB per 10^6",
            at_most=100.0,
        ),
        Goal(
            what="growth of the worker", subject="worker, growth", unit="MB per 10^6", at_most=100.0
        ),
    ],
)
