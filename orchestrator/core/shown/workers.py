"""A worker: as JSON, and as facts. Ages are by the database's clock, which decides who is stale."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.conf import settings
from pydantic import Field

from orchestrator.core import fleet, words
from orchestrator.core.fleet import subscriptions
from orchestrator.core.models import Execution, Worker, WorkerEvent
from orchestrator.core.shown.documents import Shown
from orchestrator.core.shown.values import At, Fact, State, said


class WorkerOut(Shown):
    """A worker. Ages are by the database's clock, which decides who is stale."""

    id: int
    name: str
    status: Worker.Status
    status_reason: str
    incarnation: int = Field(description="The number of lives that its process has had.")
    capacity: int = Field(description="The number of actions it runs at the same time.")
    load: int = Field(description="The number of executions it holds: waiting for it, or running.")
    runtimes: list[str]
    queues: dict[str, int | None] = Field(
        description="Queues that it serves, with the most slots for each, null for all; empty for "
        "the default one alone."
    )
    queue_pauses: dict[str, str] = Field(
        description="Queues of which it takes nothing, and until when."
    )
    isolation: str = Field(description="The isolation that it gives to processes: process or user.")
    labels: dict[str, Any]
    registered_at: datetime | None
    heartbeat_at: datetime | None
    heartbeat_age_seconds: float | None
    heartbeat: str = Field(
        description="fresh or stale; gone, retired or never if the worker is down."
    )
    fresh: bool = Field(description="true if its heartbeat is younger than the staleness window.")
    eligible: bool = Field(
        description="true if it is active, fresh and not cordoned: it may get work."
    )
    failed_checks: dict[str, str] = Field(
        description="The problem that each failing check reports."
    )
    missing_code: dict[str, str] = Field(
        description="Each pack, or single action of one, whose code its host lacks, and why."
    )
    pauses: dict[str, datetime] = Field(
        description="Queues of which it takes nothing until then, as an action of them could not "
        "begin; `action:REF` for an action without a queue."
    )
    cordoned: bool = Field(description="true if it gets only work that is pinned to it.")
    cordon_reason: str
    gone_at: datetime | None = Field(description="The time when it left or was lost.")
    retired_at: datetime | None = Field(description="The time when its queues were removed.")
    host: str
    pid: int | None
    version: str = Field(description="The version of Celery that it runs.")


class WorkerEventOut(Shown):
    """An event in the life of a worker."""

    kind: WorkerEvent.Kind
    incarnation: int
    actor: str
    reason: str
    at: datetime


COPIED = (
    "name", "status", "status_reason", "incarnation", "capacity", "runtimes", "isolation",
    "labels", "queues", "queue_pauses",
    "registered_at", "heartbeat_at", "failed_checks", "missing_code", "cordoned", "cordon_reason",
    "gone_at", "retired_at", "host", "pid", "version",
)  # fmt: skip
"""The fields that are copied from the row."""


def whole(worker: Worker, *, load: int, now: datetime) -> WorkerOut:
    """Convert a worker; `load` is the number of executions it holds."""
    age = None if worker.heartbeat_at is None else (now - worker.heartbeat_at).total_seconds()
    return WorkerOut(
        **{name: getattr(worker, name) for name in COPIED},
        id=worker.pk,
        load=load,
        pauses=fleet.paused(worker.queue_pauses, now=now),
        heartbeat_age_seconds=age,
        heartbeat=worker.heartbeat_state(now),
        fresh=worker.is_fresh(now),
        eligible=worker.is_eligible(now),
    )


def all_of(workers: Iterable[Worker], *, now: datetime) -> list[WorkerOut]:
    """Convert workers, each with its load; one query counts for all."""
    load = Execution.objects.load_by_worker()
    return [whole(worker, load=load.get(worker.pk, 0), now=now) for worker in workers]


def one(worker: Worker, *, now: datetime) -> WorkerOut:
    """Convert one worker, with its load."""
    return whole(worker, load=Execution.objects.held_by(worker).count(), now=now)


def hindrances(worker: WorkerOut, now: datetime) -> str:
    """The reasons why it gets no work, or less."""
    reasons = [worker.status_reason] if worker.status_reason else []
    reasons += [f"lacks {what}" for what in fleet.lacking(worker.missing_code)]
    reasons += [f"pauses {what}" for what in fleet.pauses_of(worker.pauses, now=now)]
    if worker.cordoned:
        reasons.append(f"cordoned: {worker.cordon_reason}" if worker.cordon_reason else "cordoned")
    return "; ".join(reasons)


def situation(worker: WorkerOut, now: datetime) -> list[Fact]:
    """Its status, heartbeat and load."""
    heartbeat = None
    if worker.heartbeat_at is not None:
        age, window = worker.heartbeat_age_seconds or 0.0, settings.MUSTER.staleness_seconds
        note = f"{words.span(age)} ago, stale after {words.span(window)} of silence"
        heartbeat = At(worker.heartbeat_at, note)
    return said(
        [
            ("Worker", worker.name),
            ("Status", State(worker.status)),
            ("Why", hindrances(worker, now)),
            ("Heartbeat", State(worker.heartbeat)),
            ("Last heartbeat", heartbeat),
            ("Load", f"{worker.load} of {worker.capacity}"),
            ("Retired", At(worker.retired_at) if worker.retired_at else None),
            ("Gone", At(worker.gone_at) if worker.gone_at and not worker.retired_at else None),
        ]
    )


def offers(worker: WorkerOut) -> list[Fact]:
    """Its runtimes, labels and slots, and the code that it lacks."""
    return said(
        [
            ("Runtimes", ", ".join(worker.runtimes)),
            ("Queues", subscriptions.text(worker.queues)),
            ("Isolation", worker.isolation),
            ("Labels", words.labels(worker.labels)),
            ("Slots", worker.capacity),
            ("Lacks", "; ".join(fleet.lacking(worker.missing_code))),
        ]
    )


def process(worker: WorkerOut) -> list[Fact]:
    """Its process."""
    return said(
        [
            ("Life", f"{worker.incarnation} (its incarnation)"),
            ("Registered", At(worker.registered_at) if worker.registered_at else None),
            ("Host, pid", ", ".join(str(part) for part in (worker.host, worker.pid) if part)),
            ("Celery", worker.version),
        ]
    )
