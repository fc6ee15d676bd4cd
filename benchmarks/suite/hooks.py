"""Signed webhooks: how many one API process takes, and how soon an action answers one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

from benchmarks import hook_body
from benchmarks.door import Door
from benchmarks.remote import BenchmarkError, Remote
from benchmarks.samples import Benchmark, Goal, Plan, Sample, parts, percentile
from benchmarks.stage import Muster, Stage

CLIENTS = 8
PACED_PER_SECOND = 200
RATE = "as fast as it goes"
PACED = f"{PACED_PER_SECOND}/s"
IDLE = "idle, to the start of the action"


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    with stage.muster(slots=2) as muster:
        muster.warm_up()
        muster.environment["MUSTER_KEYRING"] = str(muster.directory / "keyring")
        with (
            closing(Remote("benchmarks.hook_side", muster.environment, muster.directory)) as side,
            closing(Remote("benchmarks.http_load", muster.environment, muster.directory)) as load,
        ):
            side.call("install_hooks")
            door = Door(muster, "manage.py", "api", "--port")
            _sent(muster, door, side, load, 300)
            for number in range(1, plan.rounds + 1):
                seconds, _ = _sent(muster, door, side, load, plan.size)
                yield Sample(RATE, number, plan.size / seconds, "/s")
                count = parts(plan.size, one_of=2, at_least=400)
                _, times_ms = _sent(muster, door, side, load, count, per_second=PACED_PER_SECOND)
                yield Sample(f"{PACED}, p50", number, percentile(times_ms, 50), "ms")
                yield Sample(f"{PACED}, p99", number, percentile(times_ms, 99), "ms")
                muster.begin()
                count = parts(plan.size, one_of=25)
                times_ms = side.call("hook_starts", url=door.url, count=count)
                yield Sample(f"{IDLE}, p50", number, percentile(times_ms, 50), "ms")
                yield Sample(f"{IDLE}, p99", number, percentile(times_ms, 99), "ms")


def _sent(
    muster: Muster, door: Door, side: Remote, load: Remote, count: int, *, per_second: float = 0
) -> tuple[float, Sequence[float]]:
    """Send so many deliveries; the seconds that it took, and the milliseconds of each."""
    muster.begin()
    seconds, times_ms, statuses = load.call(
        "ask_each",
        url=f"{door.url}/api/v1/hooks/bench",
        headers=door.headers,
        each=side.call("signed", count=count),
        body=hook_body.BODY,
        clients=CLIENTS,
        per_second=per_second,
    )
    if statuses != [202]:
        raise BenchmarkError(f"deliveries: expected 202, found {statuses}")
    side.call("check_events", count=count, within_seconds=60)
    return seconds, times_ms


BENCHMARK = Benchmark(
    name="hooks",
    title="Signed webhooks",
    measure=measure,
    notes=(
        f"One API process; deliveries of 0.5 KB, signed as GitHub signs, {CLIENTS} connections, "
        "each of which sends again at once; an executor asks the rules beside it. At a fixed "
        "rate, the time of each counts from when it was due. Idle: one at a time, 20 to 40 ms "
        "apart, from the sending to the start of the action of the rule that matches."
    ),
    goals=[
        Goal(what="signed hooks, one API process", subject=RATE, unit="/s", at_least=500.0),
        Goal(what=f"hooks at {PACED}, p99", subject=f"{PACED}, p99", unit="ms", at_most=50.0),
        Goal(
            what="idle, hook to the start of its action, p50",
            subject=f"{IDLE}, p50",
            unit="ms",
            at_most=25.0,
        ),
    ],
)
