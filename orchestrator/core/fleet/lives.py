"""The life of a worker's process: registration, heartbeats, checks, departure, loss.

Also the code of packs that its host lacks: it gets no work that needs such code.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

import structlog
from django.conf import settings
from django.db import transaction

from orchestrator.core import clock, metrics
from orchestrator.core import isolation as levels
from orchestrator.core.errors import NotFound
from orchestrator.core.fleet import subscriptions, takeovers
from orchestrator.core.models import Worker, WorkerEvent

log = structlog.get_logger(__name__)

Kind = WorkerEvent.Kind
Status = Worker.Status

SET_BY_REGISTRATION = (
    *("incarnation", "status", "status_reason", "failed_checks", "missing_code", "queue_pauses"),
    *("gone_at", "retired_at", "registered_at", "heartbeat_at"),
    *("capacity", "runtimes", "isolation", "host", "pid", "version"),
)
"""Not the name, the labels and the cordon: those are not of one life."""

LONGEST_REASON = 200
CHECK = "heartbeat_staleness_check"

STARTING = "starting"
"""The check that a worker fails between its registration and its readiness."""
NOT_CONSUMING = "it does not consume its queue yet"


class UnknownWorker(NotFound):
    """No worker has this id or name."""


class HeartbeatAnswer(enum.Enum):
    """The answer to a worker's heartbeat."""

    CARRY_ON = "carry_on"
    DRAIN = "drain"
    """Take no more work, finish what runs, and leave."""
    LOST = "lost"
    """It was declared lost or replaced, and others already act on that."""


def enlist(
    *,
    name: str,
    labels: Mapping[str, str] | None = None,
    queues: Mapping[str, int | None] | None = None,
) -> Worker:
    """Get the worker of this name, or create it. Its id names its own queues.

    `queues`: the work queues that it serves, each with the most slots for it, None for all; empty
    for the default one alone. New labels and queues take effect at its next registration. Raises
    InvalidSubscription for a queue that is not there.
    """
    subscriptions.require_known(queues or {})
    worker, _ = Worker.objects.get_or_create(name=name)
    given = {"labels": labels, "queues": queues}
    new = {
        field: dict(value)
        for field, value in given.items()
        if value is not None and value != getattr(worker, field)
    }
    if new:
        Worker.objects.filter(pk=worker.pk).update(**new)
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
    isolation: str = levels.PROCESS,
    missing_code: Mapping[str, str] | None = None,
    replaces: bool = False,
) -> Worker:
    """Begin a new life of a worker: its earlier incarnation is refused from now on.

    `version` is Celery's. One that is not ready gets no work until `admit`. A cordon stays: it
    belongs to the worker, not to one life. A life that another process of `host`, this machine,
    leads ends only if this one `replaces` it. Raises UnknownWorker and WorkerRuns.
    """
    with transaction.atomic():
        worker = locked(worker_id)
        if not replaces:
            takeovers.require_vacant(worker, host=host, pid=pid, now=now)
        takeovers.warn_of_another_host(worker, host=host, now=now)
        replaced = _named(worker) if worker.is_up else None
        if replaced is not None:
            note(worker, Kind.LOST, reason="replaced by a new process", now=now)
            metrics.WORKER_DOWNTIME.observe([("", _silent_seconds(worker, now))])
        worker.incarnation += 1
        worker.status, worker.status_reason = Status.ACTIVE, ""
        worker.failed_checks, worker.missing_code, worker.queue_pauses = {}, {}, {}
        if not is_ready:
            worker.status, worker.status_reason = Status.INACTIVE, STARTING
            worker.failed_checks = {STARTING: NOT_CONSUMING}
        worker.gone_at = worker.retired_at = None
        worker.capacity, worker.runtimes = capacity, sorted(runtimes)
        worker.isolation = isolation
        worker.registered_at = worker.heartbeat_at = now
        worker.host, worker.pid, worker.version = host, pid, version
        worker.save(update_fields=SET_BY_REGISTRATION)
        note(worker, Kind.REGISTERED, reason=f"{host}, pid {pid}", now=now)
        _set_missing_code(worker, missing_code or {}, now=now)
    if replaced is not None:
        log.warning("worker lost", **replaced, why="replaced")
    log.info(
        "worker registered",
        worker=worker.name,
        worker_id=worker.pk,
        incarnation=worker.incarnation,
    )
    return worker


def admit(*, worker_id: int, incarnation: int) -> bool:
    """Record that a registered worker is ready: it consumes its queue, and can stop properly.

    It gets work from now on, unless it drains or fails a check. Returns True if this is new.
    """
    with transaction.atomic():
        worker = this_life(worker_id, incarnation)
        if worker is None or STARTING not in worker.failed_checks:
            return False
        _drop_check(worker, STARTING)
    return True


def beat(*, worker_id: int, incarnation: int, now: datetime) -> HeartbeatAnswer:
    """Renew a heartbeat; returns the answer for the worker.

    A late heartbeat never undoes a decision made meanwhile: it sets only its own time.
    """
    mine = Worker.objects.filter(pk=worker_id, incarnation=incarnation, gone_at__isnull=True)
    if not mine.update(heartbeat_at=now):
        return HeartbeatAnswer.LOST
    return (
        HeartbeatAnswer.DRAIN
        if mine.filter(status=Status.DRAINING).exists()
        else HeartbeatAnswer.CARRY_ON
    )


def drain(*, worker_id: int, incarnation: int, reason: str, now: datetime) -> bool:
    """Record that a worker is stopping: it gets no more work, and finishes what it runs."""
    with transaction.atomic():
        worker = this_life(worker_id, incarnation)
        if worker is None or worker.status == Status.DRAINING:
            return False
        change(worker, status=Status.DRAINING, status_reason=reason)
        note(worker, Kind.DRAINING, reason=reason, now=now)
    return True


def leave(*, worker_id: int, incarnation: int, reason: str, now: datetime) -> bool:
    """End this life of a worker properly."""
    with transaction.atomic():
        worker = this_life(worker_id, incarnation)
        if worker is None:
            return False
        change(worker, status=Status.INACTIVE, status_reason=reason, gone_at=now)
        note(worker, Kind.LEFT, reason=reason, now=now)
    return True


def mark_stale(*, now: datetime) -> list[Worker]:
    """Declare every worker lost that was silent for longer than the staleness window.

    The incarnation is compared: a worker that registered again meanwhile is not touched. A row that
    another session holds is skipped, and looked at again at the next tick. No worker is declared
    lost just after the clock was set, nor by a time that was read before this process was kept from
    going on: its heartbeat is compared once more when its row is locked.
    """
    moment = clock.Running(now)
    if not clock_is_trusted(now):
        return []
    lost = []
    for worker in Worker.objects.stale(now):
        with transaction.atomic():
            same = Worker.objects.filter(pk=worker.pk, incarnation=worker.incarnation)
            silent = same.up().unheld().first()
            if moment.was_set():
                break
            at = moment()
            if silent is None or silent.is_fresh(at):
                continue
            change(worker, status=Status.INACTIVE, status_reason="heartbeat stale", gone_at=at)
            note(worker, Kind.LOST, actor=CHECK, reason="heartbeat stale", now=at)
            metrics.WORKER_DOWNTIME.observe([("", _silent_seconds(worker, at))])
        lost.append(worker)
        log.warning("worker lost", **_named(worker), why="silent")
    return lost


def _named(worker: Worker) -> dict[str, Any]:
    """The fields of a line that say which life of a worker it is about."""
    return {
        "worker": worker.name,
        "worker_id": worker.pk,
        "incarnation": worker.incarnation,
        "host": worker.host,
        "pid": worker.pid,
        "heartbeat_at": worker.heartbeat_at,
    }


def _silent_seconds(worker: Worker, now: datetime) -> float:
    """The time since its last heartbeat, which may have come from a clock that was set back."""
    assert worker.heartbeat_at is not None
    return max(0.0, (now - worker.heartbeat_at).total_seconds())


def clock_is_trusted(now: datetime) -> bool:
    """Return True if the clock can be compared with the times that workers have written.

    It can if this process has watched it run steadily for a staleness window: every living worker
    has sent a heartbeat since. A process that has watched for less, and saw no step, may have
    started just after one. It checks the heartbeats instead: a step makes all of them look too old,
    or too new, until the workers send new ones.
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
    """Record that a check of this worker fails: it gets no more work until every check passes.

    Its heartbeats and its running actions continue. A drain stays a drain. Returns True if this is
    new; a worker that is gone, or in another life, is left alone.
    """
    with transaction.atomic():
        worker = this_life(worker_id, incarnation)
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
    """Record that a check of this worker passes; if none fails any more, it is active again.

    Undoes neither a drain nor a cordon. Returns True if this is new.
    """
    mine = Worker.objects.filter(pk=worker_id, incarnation=incarnation)
    if not mine.exclude(failed_checks={}).exists():
        return False  # nearly always the case, and then nothing is locked
    with transaction.atomic():
        worker = this_life(worker_id, incarnation)
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
    reason = "; ".join(f"{name}: {why}" for name, why in sorted(failed.items()))
    status = Status.INACTIVE if failed else Status.ACTIVE
    change(worker, failed_checks=failed, status=status, status_reason=reason)


# --- the code of packs ---------------------------------------------------------------------------


def lack_code(
    *, worker_id: int, incarnation: int, missing: Mapping[str, str], now: datetime
) -> bool:
    """Record that a worker lacks the code of these packs, or of single actions: name and reason.

    Returns True if this is new. A worker that is gone, or in another life, is left alone.
    """
    with transaction.atomic():
        worker = this_life(worker_id, incarnation)
        if worker is None:
            return False
        return _set_missing_code(worker, worker.missing_code | dict(missing), now=now)


def have_code(*, worker_id: int, incarnation: int, names: Collection[str], now: datetime) -> bool:
    """Record that a worker has the code of packs, or of single actions, that it lacked. Returns
    True if this is new."""
    with transaction.atomic():
        worker = this_life(worker_id, incarnation)
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


# --- shared by the verbs -------------------------------------------------------------------------


def locked(worker_id: int) -> Worker:
    """Lock a worker until the transaction ends. Raises UnknownWorker."""
    worker = Worker.objects.select_for_update(no_key=True).filter(pk=worker_id).first()
    if worker is None:
        raise UnknownWorker(f"No worker has the id {worker_id}; `manage.py worker` makes one")
    return worker


def this_life(worker_id: int, incarnation: int) -> Worker | None:
    """Lock the worker until the transaction ends; None if this life of it is over."""
    lives = Worker.objects.up().filter(pk=worker_id, incarnation=incarnation)
    return lives.select_for_update(no_key=True).first()


def change(worker: Worker, **values: object) -> None:
    """Write only these columns of a locked worker: a heartbeat may come in between."""
    for name, value in values.items():
        setattr(worker, name, value[:LONGEST_REASON] if isinstance(value, str) else value)
    worker.save(update_fields=list(values))


def note(
    worker: Worker, kind: WorkerEvent.Kind, *, reason: str, now: datetime, actor: str = ""
) -> None:
    """Record an event of a worker; without an actor, the worker itself is the actor."""
    WorkerEvent.objects.create(
        worker=worker,
        kind=kind,
        incarnation=worker.incarnation,
        actor=actor or worker.name,
        reason=reason[:LONGEST_REASON],
        at=now,
    )
