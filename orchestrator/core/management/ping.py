"""A check of one worker: a line for people, and a verdict for supervisors."""

from __future__ import annotations

from datetime import datetime

from django.conf import settings

from orchestrator.core import fleet, words
from orchestrator.core.models import Worker


def ping(name: str, *, now: datetime) -> tuple[bool, str]:
    """Check that the worker of this name lives and is fit for work; returns the verdict and a line.

    A worker that drains or is cordoned is well: it follows an order. So is a worker that lacks a
    pack: it can run other actions, and a restart would not help. One that pauses a queue works for
    all others.
    """
    worker = Worker.objects.filter(name=name).first()
    if worker is None:
        return False, f"{name}: no worker of this name ever registered"
    if worker.heartbeat_at is None:
        return False, f"{name}: never started"
    age = words.span((now - worker.heartbeat_at).total_seconds())
    where = f"life {worker.incarnation}, pid {worker.pid} on {worker.host}"
    if worker.gone_at is not None:
        return False, f"{name}: gone ({worker.status_reason}), last heartbeat {age} ago; {where}"
    if not worker.is_fresh(now):
        window = settings.MUSTER.staleness_seconds
        return False, f"{name}: silent for {age}, stale after {window:g} s; {where}"
    if worker.failed_checks:
        failed = "; ".join(f"{check}: {why}" for check, why in sorted(worker.failed_checks.items()))
        return False, f"{name}: unfit for work, {failed}; heartbeat {age} ago; {where}"
    cordon = f", cordoned ({worker.cordon_reason})" if worker.cordoned else ""
    lacks = "".join(f", lacks {what}" for what in fleet.lacking(worker.missing_code))
    paused = fleet.paused(worker.queue_pauses, now=now)
    pauses = "".join(f", pauses {what}" for what in fleet.pauses_of(paused, now=now))
    return True, f"{name}: {worker.status}{cordon}{lacks}{pauses}, heartbeat {age} ago; {where}"
