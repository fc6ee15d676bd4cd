"""The admin's pages and the API's lists over a million executions."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.samples import Benchmark, Goal, Plan, Sample, percentile
from benchmarks.stage import Stage

MANY = 1_000_000
"""With three history rows each."""
A_FEW = 20_000
"""For a run that only shows that it works."""
OTHERS = 100_000
"""Tasks, with two steps each, and entries of the DLQ."""
ASKED = 20
"""Times a round, for each page."""

PAGES, ANSWERS = "admin, the slowest", "api, the slowest"


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    with stage.muster(slots=1) as party:
        party.per_second(1)  # the copies' model
        party.remote.call("fill", count=MANY if plan.size >= Plan().size else A_FEW)
        party.remote.call("vary")
        party.remote.call("install_templates", sizes=[2])
        party.remote.call("fill_others", count=OTHERS if plan.size >= Plan().size else A_FEW // 10)
        token = party.remote.call("make_token")
        for number in range(1, plan.rounds + 1):
            slowest = {PAGES: 0.0, ANSWERS: 0.0}
            for name, (times_ms, statements) in party.remote.call(
                "look", count=ASKED, token=token
            ).items():
                p95 = percentile(times_ms, 95)
                yield Sample(f"{name}, p95", number, p95, "ms")
                yield Sample(f"{name}, statements", number, statements, "")
                kind = PAGES if name.startswith("admin") else ANSWERS
                slowest[kind] = max(slowest[kind], p95)
            yield from (Sample(kind, number, value, "ms") for kind, value in slowest.items())


BENCHMARK = Benchmark(
    name="pages",
    title="Pages and lists of a million executions",
    measure=measure,
    notes=(
        f"{MANY:,} executions that ended ({A_FEW:,} where the size is smaller than the default): "
        "one of a hundred failed, and the five oldest have a rare action, worker and reason. "
        f"{OTHERS:,} tasks with two steps each and as many entries of the DLQ, a tenth open. "
        f"Each page is asked for {ASKED} times a round, in the process that measures: the time is "
        "the server's, without a network."
    ),
    goals=[
        Goal(what="slowest page of the admin, p95", subject=PAGES, unit="ms", at_most=150.0),
        Goal(what="slowest answer of the API, p95", subject=ANSWERS, unit="ms", at_most=150.0),
    ],
)
