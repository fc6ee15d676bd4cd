"""Timers: many that are due at the same moment, and how late few are."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.samples import Benchmark, Goal, Plan, Sample, percentile
from benchmarks.stage import Stage

TIMERS = 10_000
EVERY_SECONDS = 20
PATIENCE_SECONDS = 15.0
TICKING = 10
LISTEN_SECONDS = 20.0
BURST = f"{TIMERS:,} due at one moment, all recorded"


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    with stage.muster(slots=2, sensors=1) as muster:
        muster.remote.call("install_ticking_rules", count=TICKING)
        for number in range(1, plan.rounds + 1):
            times_ms = muster.remote.call("lateness_ms", seconds=LISTEN_SECONDS)
            for percent in (50, 99):
                late = percentile(times_ms, percent)
                yield Sample(f"idle lateness, p{percent}", number, late, "ms")
    with stage.muster(slots=2, sensors=1) as muster:
        muster.remote.call("install_timers", count=TIMERS, every_seconds=EVERY_SECONDS)
        for number in range(1, plan.rounds + 1):
            patience = {"count": TIMERS, "within_seconds": PATIENCE_SECONDS}
            yield Sample(BURST, number, muster.remote.call("burst_seconds", **patience), "s")


BENCHMARK = Benchmark(
    name="timers",
    title="Timers that are due at once, and how late they are",
    measure=measure,
    notes=(
        "One sensor service and one executor. The seconds are from the time at which all timers "
        "are due until the events of all are committed. Lateness: from the time at which a "
        f"tick is due until another session can see its event, of {TICKING} timers of one second, "
        "nothing else to do. A rule waits for each timer, and matches none of its events."
    ),
    goals=[
        Goal(what=BURST, subject=BURST, unit="s", at_most=3.0),
        Goal(
            what="lateness of timers, idle, p99",
            subject="idle lateness, p99",
            unit="ms",
            at_most=100.0,
        ),
    ],
)
