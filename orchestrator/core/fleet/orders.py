"""Orders of operators for a worker: cordon, uncordon, drain, retire.

Each records who ordered it and why. No heartbeat, late or not, undoes an order.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import structlog
from amqp.exceptions import PreconditionFailed
from django.conf import settings
from django.db import transaction

from orchestrator.core import brokers, publisher, topology
from orchestrator.core.errors import Conflict
from orchestrator.core.fleet.lives import Kind, Status, UnknownWorker, change, locked, note
from orchestrator.core.models import Execution, Worker

log = structlog.get_logger(__name__)

JANITOR = "retire_janitor"


class WorkerIsUp(Conflict):
    """The worker is up: drain it, or stop it, before it is retired."""

    kind = "worker-is-up"


class WorkerIsRetired(Conflict):
    """The worker is retired: it has no process that could be drained."""

    kind = "worker-is-retired"


class WorkerHoldsWork(Conflict):
    """Something still waits for this worker, and would be lost."""

    kind = "worker-holds-work"
    retry_after_seconds = 60


def cordon(*, worker_id: int, actor: str, reason: str, now: datetime) -> Worker:
    """Give this worker only executions that are pinned to it; what it has goes on.

    Another call changes the reason. Raises UnknownWorker.
    """
    with transaction.atomic():
        worker = locked(worker_id)
        if not worker.cordoned or worker.cordon_reason != reason:
            change(worker, cordoned=True, cordon_reason=reason)
            note(worker, Kind.CORDONED, actor=actor, reason=reason, now=now)
    return worker


def uncordon(*, worker_id: int, actor: str, reason: str, now: datetime) -> Worker:
    """Let this worker have work again. If it drains, it still ends this life, and gets work in its
    next. Raises UnknownWorker."""
    with transaction.atomic():
        worker = locked(worker_id)
        if worker.cordoned:
            change(worker, cordoned=False, cordon_reason="")
            note(worker, Kind.UNCORDONED, actor=actor, reason=reason, now=now)
    return worker


def order_drain(*, worker_id: int, actor: str, reason: str, now: datetime) -> Worker:
    """Cordon a worker and have it finish what it runs, take nothing more, and leave.

    It learns of that at its next heartbeat. The cordon stays: after a restart, by its supervisor or
    by hand, it gets no work until it is uncordoned. Raises UnknownWorker and
    WorkerIsRetired.
    """
    with transaction.atomic():
        if (retired := locked(worker_id)).retired_at is not None:
            raise WorkerIsRetired(f"{retired} is retired: it has no process that could be drained")
        worker = cordon(worker_id=worker_id, actor=actor, reason=reason, now=now)
        if worker.is_up and worker.status != Status.DRAINING:
            change(worker, status=Status.DRAINING, status_reason=f"drained by {actor}: {reason}")
            note(worker, Kind.DRAINING, actor=actor, reason=reason, now=now)
    return worker


def retire(*, worker_id: int, actor: str, reason: str, now: datetime) -> Worker:
    """Remove the queues of a worker that is gone for good; its row stays, for its history.

    A worker of that name that registers again is no longer retired. Raises UnknownWorker,
    WorkerIsUp, WorkerHoldsWork, and BrokerUnavailable.
    """
    worker = Worker.objects.filter(pk=worker_id).first()
    if worker is None:
        raise UnknownWorker(f"No worker has the id {worker_id}")
    if worker.retired_at is not None:
        return worker
    if worker.is_up:
        raise WorkerIsUp(f"{worker} is up: drain it, or stop it, before it is retired")
    if held := Execution.objects.held_by(worker).count():
        raise WorkerHoldsWork(
            f"{worker} still holds {held} executions; they end, or go elsewhere, by themselves: "
            "try again in a few minutes"
        )
    _remove_queues(worker)
    with transaction.atomic():
        worker = locked(worker_id)
        if worker.is_up:
            raise WorkerIsUp(f"{worker} came back meanwhile")
        change(worker, retired_at=now)
        note(worker, Kind.RETIRED, actor=actor, reason=reason, now=now)
    log.info("worker retired", worker=worker.name, actor=actor)
    return worker


def retire_gone(*, now: datetime) -> list[str]:
    """Retire every worker that has been gone for `retire_after_hours`; returns their names.

    One that still holds something is left for later. Raises BrokerUnavailable.
    """
    hours = settings.MUSTER.retire_after_hours
    retired = []
    for worker in Worker.objects.gone_since(now - timedelta(hours=hours)):
        try:
            retire(worker_id=worker.pk, actor=JANITOR, reason=f"gone for {hours:g} h", now=now)
        except (WorkerIsUp, WorkerHoldsWork) as why:
            log.debug("not retired yet", worker=worker.name, why=str(why))
        else:
            retired.append(worker.name)
    return retired


def _remove_queues(worker: Worker) -> None:
    """Delete its dispatch queue if that is empty, and its cancel queue with all messages: a cancel
    is a hint, and there is no process left to take it."""
    dispatches, cancels = topology.worker_queue(worker.pk), topology.cancel_queue(worker.pk)
    try:
        with brokers.connection() as link:
            channel: Any = link.channel()
            channel.queue_delete(dispatches.name, if_unused=True, if_empty=True)
            channel.queue_delete(cancels.name, if_unused=True)
    except PreconditionFailed as refused:
        ttl_seconds = settings.MUSTER.worker_queue_ttl_ms / 1000
        raise WorkerHoldsWork(
            f"{dispatches.name} is not empty, or somebody consumes it ({refused.reply_text}); "
            f"what is out of date in it expires within {ttl_seconds:g} s: try again then"
        ) from None
    except brokers.errors() as error:
        raise publisher.BrokerUnavailable(f"{worker} is not retired: {error!r}") from error
