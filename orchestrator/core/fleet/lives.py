"""The life of a worker's process: it comes, beats, fails or passes its checks, leaves, is lost.

It also says which code of packs its host lacks: it gets no work that needs that.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

import structlog
from django.conf import settings
from django.db import transaction

from orchestrator.core import clock
from orchestrator.core.errors import NotFound
from orchestrator.core.models import Worker, WorkerEvent

log = structlog.get_logger(__name__)

Kind = WorkerEvent.Kind
Status = Worker.Status

LONGEST_REASON = 200
CHECK = "heartbeat_staleness_check"

STARTING = "starting"
"""The check that a worker fails between its registration and its readiness."""
NOT_CONSUMING = "it does not consume its queue yet"


class UnknownWorker(NotFound):
    """No worker has this id or name."""


class Told(enum.Enum):
    """What a worker hears when it renews its heartbeat."""

    CARRY_ON = "carry_on"
    DRAIN = "drain"
    """Take no more work, finish what runs, and go."""
    LOST = "lost"
    """It was declared lost or replaced: others act on its being gone."""


def enlist(*, name: str, labels: Mapping[str, str] | None = None) -> Worker:
    """The worker of this name, made if it is new. Its id names its queues.

    New labels count from its next registration on.
    """
    worker, _ = Worker.objects.get_or_create(name=name)
    if labels is not None and labels != worker.labels:
        Worker.objects.filter(pk=worker.pk).update(labels=dict(labels))
    return worker


def register(
    *,
    worker_id: int,
    capacity: int,
    runtimes: Iterable[str],
    host: str,
    pid: int,
    version: str,
    now: datetime,
    is_ready: bool = True,
    missing_code: Mapping[str, str] | None = None,
) -> Worker:
    """Begin a new life of a worker: its earlier incarnation is refused from here on.

    One that is not ready gets no work until `admit`. A cordon stays: it is of the worker, not of
    one life. Raises UnknownWorker.
    """
    with transaction.atomic():
        worker = locked(worker_id)
        if worker.is_up:
            note(worker, Kind.LOST, reason="replaced by a new process", now=now)
        worker.incarnation += 1
        worker.status, worker.status_reason = Status.ACTIVE, ""
        worker.failed_checks, worker.missing_code = {}, {}
        if not is_ready:
            worker.status, worker.status_reason = Status.INACTIVE, STARTING
            worker.failed_checks = {STARTING: NOT_CONSUMING}
        worker.gone_at = worker.retired_at = None
        worker.capacity, worker.runtimes = capacity, sorted(runtimes)
        worker.registered_at = worker.heartbeat_at = now
        worker.host, worker.pid, worker.version = host, pid, version
        worker.save()
        note(worker, Kind.REGISTERED, reason=f"{host}, pid {pid}", now=now)
        _set_missing_code(worker, missing_code or {}, now=now)
    log.info("worker registered", worker=worker.name, incarnation=worker.incarnation)
    return worker


def admit(*, worker_id: int, incarnation: int) -> bool:
    """A worker that has registered is ready: it consumes its queue, and can stop in good order.

    It is given work from here on, unless it drains or fails a check. Returns whether that is news.
    """
    with transaction.atomic():
        worker = _this_life(worker_id, incarnation)
        if worker is None or STARTING not in worker.failed_checks:
            return False
        _drop_check(worker, STARTING)
    return True


def beat(*, worker_id: int, incarnation: int, now: datetime) -> Told:
    """Renew a heartbeat; returns what the worker is told.

    A late heartbeat never undoes what was decided meanwhile: it sets its own time alone.
    """
    mine = Worker.objects.filter(pk=worker_id, incarnation=incarnation, gone_at__isnull=True)
    if not mine.update(heartbeat_at=now):
        return Told.LOST
    return Told.DRAIN if mine.filter(status=Status.DRAINING).exists() else Told.CARRY_ON


def drain(*, worker_id: int, incarnation: int, reason: str, now: datetime) -> bool:
    """A worker that was told to stop says so: it gets no more work, and finishes what it runs."""
    with transaction.atomic():
        worker = _this_life(worker_id, incarnation)
        if worker is None or worker.status == Status.DRAINING:
            return False
        change(worker, status=Status.DRAINING, status_reason=reason)
        note(worker, Kind.DRAINING, reason=reason, now=now)
    return True


def leave(*, worker_id: int, incarnation: int, reason: str, now: datetime) -> bool:
    """End this life of a worker in good order."""
    with transaction.atomic():
        worker = _this_life(worker_id, incarnation)
        if worker is None:
            return False
        change(worker, status=Status.INACTIVE, status_reason=reason, gone_at=now)
        note(worker, Kind.LEFT, reason=reason, now=now)
    return True


def mark_stale(*, now: datetime) -> list[Worker]:
    """Declare lost every worker that was silent for longer than the staleness window.

    The incarnation is compared: a worker that registered again meanwhile is not touched. One whose
    row another session holds is passed over, and looked at again at the next tick. Nobody is lost
    by a clock that was set just now.
    """
    if not clock_is_trusted(now):
        return []
    lost = []
    for worker in Worker.objects.stale(now):
        with transaction.atomic():
            silent = Worker.objects.stale(now).filter(pk=worker.pk, incarnation=worker.incarnation)
            if silent.unheld().first() is None:
                continue
            change(worker, status=Status.INACTIVE, status_reason="heartbeat stale", gone_at=now)
            note(worker, Kind.LOST, actor=CHECK, reason="heartbeat stale", now=now)
        lost.append(worker)
        log.warning("worker lost", worker=worker.name, heartbeat_at=worker.heartbeat_at)
    return lost


def clock_is_trusted(now: datetime) -> bool:
    """Whether the clock can be compared with what workers have written.

    It can when this process has watched it run steadily for a staleness window: every worker that
    lives has beaten since. One that has not watched for so long, and saw no step, may have begun
    just after one. It takes the workers for its witnesses: a step makes the heartbeat of each look
    old, or new, until the worker has beaten again.
    """
    window_seconds = settings.MUSTER.staleness_seconds
    if clock.steady_seconds() >= window_seconds:
        return True
    if clock.was_set(within_seconds=window_seconds):
        return False
    return not Worker.objects.stale(now).exists()


# --- its checks ----------------------------------------------------------------------------------


def mark_unhealthy(
    *, worker_id: int, incarnation: int, check: str, reason: str, now: datetime
) -> bool:
    """A check of this worker fails: it gets no more work until every check passes again.

    It beats on, and what it runs goes on. A drain stays a drain. Returns whether that is news;
    a worker that is gone, or in another life, is left alone.
    """
    with transaction.atomic():
        worker = _this_life(worker_id, incarnation)
        reason = reason[:LONGEST_REASON]
        if worker is None or worker.failed_checks.get(check) == reason:
            return False
        is_new = check not in worker.failed_checks
        _set_failed_checks(worker, {**worker.failed_checks, check: reason})
        if is_new:
            note(worker, Kind.UNHEALTHY, reason=f"{check}: {reason}", now=now)
            log.warning("worker unhealthy", worker=worker.name, check=check, reason=reason)
    return is_new


def mark_healthy(*, worker_id: int, incarnation: int, check: str, now: datetime) -> bool:
    """A check of this worker passes; with the last one that failed, it is active again.

    Undoes neither a drain nor a cordon. Returns whether that is news.
    """
    mine = Worker.objects.filter(pk=worker_id, incarnation=incarnation)
    if not mine.exclude(failed_checks={}).exists():
        return False  # nearly always so, and then nothing is locked
    with transaction.atomic():
        worker = _this_life(worker_id, incarnation)
        if worker is None or check not in worker.failed_checks:
            return False
        _drop_check(worker, check)
        note(worker, Kind.HEALTHY, reason=f"{check} passes", now=now)
        log.info(
            "worker check passes",
            worker=worker.name,
            check=check,
            failing=list(worker.failed_checks),
        )
    return True


def _drop_check(worker: Worker, check: str) -> None:
    left = {name: why for name, why in worker.failed_checks.items() if name != check}
    _set_failed_checks(worker, left)


def _set_failed_checks(worker: Worker, failed: dict[str, str]) -> None:
    if worker.status == Status.DRAINING:
        change(worker, failed_checks=failed)
        return
    told = "; ".join(f"{name}: {why}" for name, why in sorted(failed.items()))
    status = Status.INACTIVE if failed else Status.ACTIVE
    change(worker, failed_checks=failed, status=status, status_reason=told)


# --- the code of packs ---------------------------------------------------------------------------


def lack_code(
    *, worker_id: int, incarnation: int, missing: Mapping[str, str], now: datetime
) -> bool:
    """A worker lacks the code of these packs, or of single actions of packs: by name, and why.

    Returns whether that is news. A worker that is gone, or in another life, is left alone.
    """
    with transaction.atomic():
        worker = _this_life(worker_id, incarnation)
        if worker is None:
            return False
        return _set_missing_code(worker, worker.missing_code | dict(missing), now=now)


def have_code(*, worker_id: int, incarnation: int, names: Collection[str], now: datetime) -> bool:
    """A worker has the code of packs, or of single actions, that it lacked. Returns whether that
    is news."""
    with transaction.atomic():
        worker = _this_life(worker_id, incarnation)
        if worker is None:
            return False
        left = {name: why for name, why in worker.missing_code.items() if name not in names}
        return _set_missing_code(worker, left, now=now)


def _set_missing_code(worker: Worker, missing: Mapping[str, str], *, now: datetime) -> bool:
    before = worker.missing_code
    after = {name: why[:LONGEST_REASON] for name, why in sorted(missing.items())}
    if after == before:
        return False
    change(worker, missing_code=after)
    for name in sorted(after.keys() - before.keys()):
        note(worker, Kind.LACKS_CODE, reason=f"{name}: {after[name]}", now=now)
        log.warning("worker lacks code", worker=worker.name, code=name, why=after[name])
    for name in sorted(before.keys() - after.keys()):
        note(worker, Kind.HAS_CODE, reason=name, now=now)
        log.info("worker has code", worker=worker.name, code=name)
    return True


# --- what the verbs have in common ---------------------------------------------------------------


def locked(worker_id: int) -> Worker:
    """The worker, held until the transaction ends. Raises UnknownWorker."""
    worker = Worker.objects.select_for_update(no_key=True).filter(pk=worker_id).first()
    if worker is None:
        raise UnknownWorker(f"No worker has the id {worker_id}; `manage.py worker` makes one")
    return worker


def _this_life(worker_id: int, incarnation: int) -> Worker | None:
    """The worker, held until the transaction ends, if this is its life and not over."""
    lives = Worker.objects.up().filter(pk=worker_id, incarnation=incarnation)
    return lives.select_for_update(no_key=True).first()


def change(worker: Worker, **values: object) -> None:
    """Write these columns of a worker that is held, and no other: a heartbeat may come between."""
    for name, value in values.items():
        setattr(worker, name, value[:LONGEST_REASON] if isinstance(value, str) else value)
    worker.save(update_fields=list(values))


def note(
    worker: Worker, kind: WorkerEvent.Kind, *, reason: str, now: datetime, actor: str = ""
) -> None:
    """Keep what happened to a worker; without an actor it did it itself."""
    WorkerEvent.objects.create(
        worker=worker,
        kind=kind,
        incarnation=worker.incarnation,
        actor=actor or worker.name,
        reason=reason[:LONGEST_REASON],
        at=now,
    )
