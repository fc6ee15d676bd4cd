"""What an operator decides of a worker: cordon, uncordon, drain, retire.

Each keeps who asked for it and why. None of it is undone by a heartbeat, late or not.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import structlog
from amqp.exceptions import PreconditionFailed
from django.conf import settings
from django.db import transaction

from orchestrator.core import publisher, topology
from orchestrator.core.errors import Conflict
from orchestrator.core.fleet.lives import Kind, Status, UnknownWorker, change, locked, note
from orchestrator.core.models import Execution, Worker

log = structlog.get_logger(__name__)

JANITOR = "retire_janitor"


class WorkerIsUp(Conflict):
    """The worker is up: drain it, or stop it, before it is retired."""

    kind = "worker-is-up"


class WorkerHoldsWork(Conflict):
    """Something still waits for this worker; retiring it would lose that."""

    kind = "worker-holds-work"
    retry_after_seconds = 60


def cordon(*, worker_id: int, actor: str, reason: str, now: datetime) -> Worker:
    """Give this worker nothing more but what asks for it by its id; what it has goes on.

    Asking again changes the reason. Raises UnknownWorker.
    """
    with transaction.atomic():
        worker = locked(worker_id)
        if not worker.cordoned or worker.cordon_reason != reason:
            change(worker, cordoned=True, cordon_reason=reason)
            note(worker, Kind.CORDONED, actor=actor, reason=reason, now=now)
    return worker


def uncordon(*, worker_id: int, actor: str, reason: str, now: datetime) -> Worker:
    """Let this worker have work again. One that drains ends this life all the same, and its next
    has work again. Raises UnknownWorker."""
    with transaction.atomic():
        worker = locked(worker_id)
        if worker.cordoned:
            change(worker, cordoned=False, cordon_reason="")
            note(worker, Kind.UNCORDONED, actor=actor, reason=reason, now=now)
    return worker


def order_drain(*, worker_id: int, actor: str, reason: str, now: datetime) -> Worker:
    """Cordon a worker and have it finish what it runs, take nothing more, and go.

    It hears so at its next heartbeat. The cordon outlives it: started again, by its supervisor
    or by hand, it gets no work until it is uncordoned. Raises UnknownWorker.
    """
    with transaction.atomic():
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
    """Retire every worker that was gone for `retire_after_hours`; returns their names.

    One that still holds something is left for a later look. Raises BrokerUnavailable.
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
    """Delete its dispatch queue if that is empty, and its cancel queue with what is in it: a
    cancel is a hint, and there is nobody left to take it."""
    dispatches, cancels = topology.worker_queue(worker.pk), topology.cancel_queue(worker.pk)
    try:
        with publisher.connection() as link:
            channel: Any = link.channel()
            channel.queue_delete(dispatches.name, if_unused=True, if_empty=True)
            channel.queue_delete(cancels.name, if_unused=True)
    except PreconditionFailed as refused:
        ttl_seconds = settings.MUSTER.worker_queue_ttl_ms / 1000
        raise WorkerHoldsWork(
            f"{dispatches.name} is not empty, or somebody consumes it ({refused.reply_text}); "
            f"what is out of date in it expires within {ttl_seconds:g} s: try again then"
        ) from None
    except publisher.errors() as error:
        raise publisher.BrokerUnavailable(f"{worker} is not retired: {error!r}") from error
