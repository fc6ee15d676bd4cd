"""A worker as listings show it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from orchestrator.core.models import Worker


def lacking(missing_code: Mapping[str, str]) -> list[str]:
    """What is said of a worker that lacks code: `lacks the pack x: why`, for each."""
    return [f"lacks {named(name)}: {why}" for name, why in missing_code.items()]


def named(name: str) -> str:
    """A pack, or an action of one, as people read it."""
    return f"the {'action' if '.' in name else 'pack'} {name}"


def describe(worker: Worker, *, now: datetime) -> dict[str, Any]:
    """A worker as the API and `manage.py workers` show it. Ages are by the database's clock."""
    age_seconds = None
    if worker.heartbeat_at is not None:
        age_seconds = (now - worker.heartbeat_at).total_seconds()
    return {
        "id": worker.pk,
        "name": worker.name,
        "status": worker.status,
        "status_reason": worker.status_reason,
        "failed_checks": worker.failed_checks,
        "missing_code": worker.missing_code,
        "cordoned": worker.cordoned,
        "cordon_reason": worker.cordon_reason,
        "eligible": worker.is_eligible(now),
        "incarnation": worker.incarnation,
        "capacity": worker.capacity,
        "runtimes": worker.runtimes,
        "labels": worker.labels,
        "registered_at": worker.registered_at,
        "heartbeat_at": worker.heartbeat_at,
        "heartbeat_age_seconds": age_seconds,
        "fresh": worker.is_fresh(now),
        "gone_at": worker.gone_at,
        "retired_at": worker.retired_at,
        "host": worker.host,
        "pid": worker.pid,
        "version": worker.version,
    }
