"""A thousand streams: how old a notification is when it comes, and what a notifier needs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

from benchmarks.remote import BenchmarkError, Remote
from benchmarks.samples import Benchmark, Goal, Plan, Sample, percentile
from benchmarks.stage import Muster, Stage
from tests import servers

CLIENTS, OWNERS = 1_000, 100
PER_SECOND = 200
SECONDS = 15
AGE, AGE_P99, MEMORY, CPU = "age, median", "age, p99", "memory", "processor"
MIB = 1024 * 1024


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    with stage.muster(slots=0) as muster:
        url = _start_notifier(muster)
        tokens = muster.remote.call("make_listeners", number=OWNERS)
        streams = [(tokens[n % OWNERS], f"user=owner{n % OWNERS}") for n in range(CLIENTS)]
        with closing(
            Remote("benchmarks.stream_load", muster.environment, muster.directory)
        ) as load:
            load.call("listen", url=url, streams=streams)
            _round(muster, load, seconds=3)
            for number in range(1, plan.rounds + 1):
                yield from _samples(muster, load, number)


def _start_notifier(muster: Muster) -> str:
    port = servers.free_port()
    muster.start("notifier", "manage.py", "notifier", "--port", str(port))
    muster.listening("notifier", port)
    return f"http://127.0.0.1:{port}"


def _samples(muster: Muster, load: Remote, number: int) -> Iterator[Sample]:
    (process, *_) = muster.tree("notifier")
    before, began = sum(process.cpu_times()[:2]), time.monotonic()
    ages_ms = _round(muster, load, seconds=SECONDS)
    used = sum(process.cpu_times()[:2]) - before
    yield Sample(AGE, number, percentile(ages_ms, 50), "ms")
    yield Sample(AGE_P99, number, percentile(ages_ms, 99), "ms")
    yield Sample(MEMORY, number, process.memory_info().rss / MIB, "MiB")
    yield Sample(CPU, number, 100 * used / (time.monotonic() - began), "%")


def _round(muster: Muster, load: Remote, *, seconds: int) -> list[float]:
    """Let executions be cancelled at a steady rate; the ages of what the clients heard."""
    count = seconds * PER_SECOND
    muster.remote.call("accept_of_owners", count=count, owners=OWNERS)
    time.sleep(2)  # what is told of their acceptance
    load.call("begin")
    muster.remote.call("cancel_steadily", per_second=PER_SECOND)
    wanted = count * CLIENTS // OWNERS
    until = time.monotonic() + 10
    while True:
        ages_ms, gaps = load.call("heard")
        if len(ages_ms) == wanted and not gaps:
            return list(ages_ms)
        if gaps or len(ages_ms) > wanted or time.monotonic() > until:
            raise BenchmarkError(f"expected {wanted:,}, heard {len(ages_ms):,}; {gaps} gaps")
        time.sleep(0.1)


BENCHMARK = Benchmark(
    name="stream",
    title="A thousand listeners",
    measure=measure,
    notes=(
        f"One notifier, {CLIENTS:,} streams of {OWNERS} identities, each with a filter. "
        f"{PER_SECOND} executions a second are cancelled, each in a transaction of its own, for "
        f"{SECONDS} s; each is told to {CLIENTS // OWNERS} clients. Age: from the transition to "
        "its arrival at the client, which shares the machine with everything else."
    ),
    goals=[
        Goal(what="age of a notification, p99", subject=AGE_P99, unit="ms", at_most=250),
        Goal(what="memory of the notifier", subject=MEMORY, unit="MiB", at_most=300),
    ],
)
