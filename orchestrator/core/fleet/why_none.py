"""Explanations of why no worker can run an execution: they name what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Max, Q

from orchestrator.core import isolation as levels
from orchestrator.core.fleet.lives import STARTING
from orchestrator.core.fleet.needs import Need, Offer
from orchestrator.core.fleet.portrait import named
from orchestrator.core.models import Worker, WorkerEvent

NAMES_SHOWN = 3

Kind = WorkerEvent.Kind
KEEPS_WORK_AWAY = (Kind.CORDONED, Kind.DRAINING, Kind.UNHEALTHY)

BROKER_CHECK = "broker"
"""The check of a worker that fails if it cannot reach its broker, or the broker cannot reach it:
not its own fault."""

NO_FAULT_OF_ITS_OWN = {BROKER_CHECK, STARTING}


def present(*, now: datetime) -> list[Worker]:
    """The workers that may be given work now, or as soon as messages reach them."""
    there = Worker.objects.up().fresh(now).filter(cordoned=False)
    there = there.exclude(status=Worker.Status.DRAINING)
    return [worker for worker in there if not _has_a_fault(worker)]


def _has_a_fault(worker: Worker) -> bool:
    return bool(worker.failed_checks.keys() - NO_FAULT_OF_ITS_OWN)


def explain(need: Need, *, now: datetime) -> str:
    """Explain why no worker can take this need: runtime, labels, or each worker's state and lacking
    code."""
    workers = list(Worker.objects.known().filter(heartbeat_at__isnull=False))
    if not workers:
        return "no workers available: none has ever registered"
    offering = [worker for worker in workers if need.runtime in worker.runtimes]
    if not offering:
        return f"no workers available: {_no_runtime(need, _all_runtimes(workers))}"
    isolating = [w for w in offering if levels.is_enough(w.isolation, need.isolation)]
    if not isolating:
        return f"no workers available: {_no_isolation(need)}"
    matching = [w for w in isolating if need.is_met_by(w)]
    if not matching:
        labels = {
            f"{key}={worker.labels[key]}"
            for worker in isolating
            for key, _ in need.labels
            if key in worker.labels
        }
        return (
            f"no workers available: none with the runtime {need.runtime} has the labels "
            f"{_labels(need)} (there are: {', '.join(sorted(labels)) or 'none of these keys'})"
        )
    serving = [worker for worker in matching if need.is_served_by(worker.queues)]
    if not serving:
        names = _names([worker.name for worker in matching])
        return f"no workers available: none of them serves the queue {need.queue} ({names})"
    states: dict[str, list[str]] = {}
    for worker in serving:
        state = _state(worker, now) if need.may_have(worker) else "reserved for others"
        if worker.is_up and (lacking := lacks(need.code, worker.missing_code)):
            state = lacking
        states.setdefault(state, []).append(worker.name)
    summary = "; ".join(f"{state}: {_names(names)}" for state, names in sorted(states.items()))
    return f"no workers available: {summary}"


def lacks(code: Iterable[str], missing_code: Mapping[str, str]) -> str:
    """The first part of this code that a worker lacks, as text; empty if it has all of it."""
    for name in code:
        if name in missing_code:
            return f"lacks {named(name)} ({missing_code[name]})"
    return ""


def explain_pinned(need: Need, offer: Offer, missing_code: Mapping[str, str]) -> str:
    """Explain why the one worker that was asked for cannot run it."""
    if lacking := lacks(need.code, missing_code):
        return f"no workers available: the one asked for {lacking}"
    if need.runtime not in offer.runtimes:
        missing = f"does not offer the runtime {need.runtime} (offered: {_joined(offer.runtimes)})"
    elif not levels.is_enough(offer.isolation, need.isolation):
        missing = f"gives the isolation {offer.isolation}, not {need.isolation}"
    else:
        has = _joined(f"{key}={value}" for key, value in offer.labels.items())
        missing = f"does not have the labels {_labels(need)} (it has: {has or 'none'})"
    return f"no workers available: the one asked for {missing}"


def present_until(need: Need, *, now: datetime, since: datetime) -> datetime | None:
    """The latest moment after `since` at which some worker could take this need; None if there was
    none.

    A worker that only cannot reach its broker counts as present: nobody can send it anything now,
    but that does not change what it may run.
    """
    # those that went before are as many as there ever were
    oldest = since - timedelta(seconds=settings.MUSTER.staleness_seconds)
    there = Worker.objects.filter(
        Q(gone_at__isnull=True) | Q(gone_at__gt=since), heartbeat_at__gt=oldest
    )
    workers = [worker for worker in there if need.may_go_to(worker)]
    events = WorkerEvent.objects.filter(worker__in=workers, kind__in=KEEPS_WORK_AWAY).order_by()
    began_at = {
        (worker_id, kind): at
        for worker_id, kind, at in events.values_list("worker", "kind").annotate(Max("at"))
    }
    had_code_until = _had_code_until(workers, need, now)
    ends = [
        min(_took_work_until(worker, began_at, now), had_code_until.get(worker.pk, now))
        for worker in workers
    ]
    return max((end for end in ends if end > since), default=None)


def _took_work_until(
    worker: Worker, began_at: Mapping[tuple[int, str], datetime], now: datetime
) -> datetime:
    assert worker.heartbeat_at is not None
    staleness = timedelta(seconds=settings.MUSTER.staleness_seconds)
    ends = [now, worker.heartbeat_at + staleness]
    if worker.gone_at is not None:
        ends.append(worker.gone_at)
    in_force = {
        Kind.CORDONED: worker.cordoned,
        Kind.DRAINING: worker.status == Worker.Status.DRAINING,
        Kind.UNHEALTHY: _has_a_fault(worker),
    }
    ends += [
        began_at.get((worker.pk, kind), worker.heartbeat_at)
        for kind, is_in_force in in_force.items()
        if is_in_force
    ]
    return min(ends)


def _had_code_until(workers: Iterable[Worker], need: Need, now: datetime) -> Mapping[int, datetime]:
    """The latest moment at which each of the workers that lack code for this need had it, as far as
    is known."""
    lacking = {
        worker.pk: (worker, tuple(f"{name}: " for name in need.code if name in worker.missing_code))
        for worker in workers
        if not worker.missing_code.keys().isdisjoint(need.code)
    }
    if not lacking:
        return {}
    names_code = Q(*(("reason__startswith", f"{name}: ") for name in need.code), _connector=Q.OR)
    events = WorkerEvent.objects.filter(names_code, worker__in=lacking, kind=Kind.LACKS_CODE)
    known_at = {
        worker_id: at  # the latest
        for worker_id, reason, at in events.order_by("at").values_list("worker", "reason", "at")
        if reason.startswith(lacking[worker_id][1])
    }
    return {
        pk: known_at.get(pk) or worker.registered_at or now for pk, (worker, _) in lacking.items()
    }


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


def _no_isolation(need: Need) -> str:
    return (
        f"none with the runtime {need.runtime} gives the isolation {need.isolation} "
        "(see MUSTER_ACTION_USER)"
    )


def _all_runtimes(workers: Iterable[Worker]) -> set[str]:
    return {runtime for worker in workers for runtime in worker.runtimes}


def _labels(need: Need) -> str:
    return ", ".join(f"{key}={value}" for key, value in need.labels)


def _joined(texts: Iterable[str]) -> str:
    return ", ".join(sorted(texts))


def _names(names: list[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
