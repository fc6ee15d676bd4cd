"""The processor time of each part, for one execution."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import psutil

from benchmarks import rivals
from benchmarks.samples import Benchmark, Plan, Sample
from benchmarks.stage import Muster, Party, Stage

IDLE_SECONDS = 5.0


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    with (
        stage.muster(slots=2) as muster,
        stage.rival(rivals.RAW_CELERY) as celery,
    ):
        parties = {"Muster": muster, "Celery": celery}
        for party in parties.values():
            party.warm_up()
        for number in range(1, plan.rounds + 1):
            for subject, party in parties.items():
                before = _seconds_by_part(stage, party)
                party.per_second(plan.size)
                after = _seconds_by_part(stage, party)
                yield from (
                    Sample(f"{subject}: {part}", number, used * 1000 / plan.size, "CPU ms each")
                    for part, used in _used(before, after).items()
                )
            yield Sample("Muster, idle", number, _idle_percent(stage, muster), "% of one core")


def _used(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    used = {part: after[part] - before.get(part, 0.0) for part in after}
    return used | {"all": sum(used.values())}


def _idle_percent(stage: Stage, muster: Muster) -> float:
    """The processor time that Muster's own services take while there is nothing to do."""
    parts = ("executor", "worker", "worker's pool")
    before = _seconds_by_part(stage, muster)
    time.sleep(IDLE_SECONDS)
    after = _seconds_by_part(stage, muster)
    return sum(after[part] - before[part] for part in parts if part in before) / IDLE_SECONDS * 100


def _seconds_by_part(stage: Stage, party: Party) -> dict[str, float]:
    """Processor seconds so far, user and system, of every process by the part it plays."""
    parts = {
        "RabbitMQ": _tree_seconds(stage.rabbit.pid),
        "PostgreSQL": _tree_seconds(stage.postgres.pid),
        "submitter": sum(_tree_seconds(remote.process.pid) for remote in party.remotes),
    }
    if isinstance(party, Muster):
        parts["executor"] = _tree_seconds(party.services["executor"].pid)
    else:
        del parts["PostgreSQL"]
    parent, *pool = party.tree("worker")
    parts["worker"] = _own_seconds(parent)
    parts["worker's pool"] = sum(map(_own_seconds, pool))
    return parts


def _tree_seconds(pid: int) -> float:
    """Of a process, its living descendants, and those of them that it has seen end."""
    root = psutil.Process(pid)
    times = root.cpu_times()
    ended = times.children_user + times.children_system
    return ended + _own_seconds(root) + sum(map(_own_seconds, root.children(recursive=True)))


def _own_seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


BENCHMARK = Benchmark(
    name="processor-time",
    title="Where the time goes, bulk, 2 slots",
    measure=measure,
    notes="The servers' share of the party that waits is in the figures, and is small: see idle.",
)
