"""Throughput and lists with millions of executions behind them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from benchmarks.door import EXECUTIONS, Door
from benchmarks.remote import Remote
from benchmarks.rounds import per_second
from benchmarks.samples import Benchmark, Goal, Plan, Sample, percentile
from benchmarks.stage import Muster, Stage

MANY = 2_500_000
"""With three history rows each, ten million rows."""
A_FEW = 100_000
"""For a run that only shows that it works."""
EMPTY, FULL = "empty table", "long history"
PAGES = {
    "newest": "?limit=50",
    "by status": "?status=completed&limit=50",
    "by action, last hour": "?action_ref=core.noop&created_after={hour_ago}&limit=50",
    "none found": "?status=failed&action_ref=core.echo&limit=50",
}


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    with (
        stage.muster(slots=2) as empty,
        stage.muster(slots=2) as full,
    ):
        full.per_second(1)  # the copies' model
        full.keeps = True
        full.remote.call("fill", count=MANY if plan.size >= Plan().size else A_FEW)
        yield from per_second({EMPTY: empty, FULL: full}, plan.size, rounds=plan.rounds)
        yield from _pages(full, plan)


def _pages(full: Muster, plan: Plan) -> Iterator[Sample]:
    door = Door(full, "manage.py", "api", "--port")
    door.headers["Authorization"] = f"Bearer {full.remote.call('make_token')}"
    hour_ago = full.remote.call("hour_ago")
    with closing(Remote("benchmarks.http_load", full.environment, full.directory)) as load:
        for number in range(1, plan.rounds + 1):
            for name, query in PAGES.items():
                path = EXECUTIONS + query.format(hour_ago=hour_ago)
                _, times_ms = door.ask(load, "GET", 200, clients=1, count=50, path=path)
                yield Sample(f"page, {name}, p95", number, percentile(times_ms, 95), "ms")


BENCHMARK = Benchmark(
    name="long-history",
    title="Throughput and lists with a long history",
    measure=measure,
    notes=(
        f"{MANY:,} terminal executions with three history rows each ({A_FEW:,} where the size is "
        "smaller than the default); bulk, 2 slots, over the same on an empty table. Pages of 50 "
        "over HTTP, one client."
    ),
    goals=[
        Goal(
            what="throughput, 10 million rows over empty",
            subject=FULL,
            over=EMPTY,
            at_least=0.85,
        ),
        *(
            Goal(
                what=f"page with 10 million rows, {name}",
                subject=f"page, {name}, p95",
                unit="ms",
                at_most=150.0,
            )
            for name in PAGES
        ),
    ],
)
