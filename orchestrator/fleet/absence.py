"""Why there is no worker for an execution: said in words that name what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from orchestrator.models import Worker

if TYPE_CHECKING:
    from orchestrator.fleet.placement import Need

NAMES_SHOWN = 3


def explain(need: Need, *, now: datetime) -> str:
    """What keeps every worker from this need: the runtime, a label, or the state of each."""
    workers = list(Worker.objects.known().filter(heartbeat_at__isnull=False))
    if not workers:
        return "no workers available: none has ever registered"
    offering = [worker for worker in workers if need.runtime in worker.runtimes]
    if not offering:
        return f"no workers available: {_no_runtime(need, _all_runtimes(workers))}"
    matching = [w for w in offering if need.is_met_by(w.runtimes, w.labels)]
    if not matching:
        found = {
            f"{key}={worker.labels[key]}"
            for worker in offering
            for key, _ in need.labels
            if key in worker.labels
        }
        return (
            f"no workers available: none with the runtime {need.runtime} has the labels "
            f"{_labels(need)} (there are: {', '.join(sorted(found)) or 'none of these keys'})"
        )
    states: dict[str, list[str]] = {}
    for worker in matching:
        state = _state(worker, now) if need.may_have(worker.labels) else "reserved for others"
        states.setdefault(state, []).append(worker.name)
    told = "; ".join(f"{state}: {_names(names)}" for state, names in sorted(states.items()))
    return f"no workers available: {told}"


def explain_pinned(need: Need, runtimes: Iterable[str], labels: Mapping[str, str]) -> str:
    """Why the one worker that was asked for cannot run it."""
    if need.runtime not in runtimes:
        missing = f"does not offer the runtime {need.runtime} (offered: {_joined(runtimes)})"
    else:
        has = _joined(f"{key}={value}" for key, value in labels.items())
        missing = f"does not have the labels {_labels(need)} (it has: {has or 'none'})"
    return f"no workers available: the one asked for {missing}"


def last_seen_at(need: Need) -> datetime | None:
    """The newest heartbeat of any worker that could have this need, up or not."""
    rows = Worker.objects.exclude(heartbeat_at=None).order_by("-heartbeat_at")
    for heartbeat_at, runtimes, labels in rows.values_list("heartbeat_at", "runtimes", "labels"):
        if need.may_have(labels) and need.is_met_by(runtimes, labels):
            return heartbeat_at
    return None


def _state(worker: Worker, now: datetime) -> str:
    if not worker.is_up:
        return "gone"
    if worker.status == Worker.Status.DRAINING:
        return "draining"
    if not worker.is_fresh(now):
        return "heartbeat too old"
    if worker.failed_checks:
        return "unhealthy"
    return "cordoned" if worker.cordoned else "just came"


def _no_runtime(need: Need, offered: Iterable[str]) -> str:
    return f"none offers the runtime {need.runtime} (offered: {_joined(offered)})"


def _all_runtimes(workers: Iterable[Worker]) -> set[str]:
    return {runtime for worker in workers for runtime in worker.runtimes}


def _labels(need: Need) -> str:
    return ", ".join(f"{key}={value}" for key, value in need.labels)


def _joined(texts: Iterable[str]) -> str:
    return ", ".join(sorted(texts))


def _names(names: list[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
