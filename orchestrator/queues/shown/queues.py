"""A queue: as JSON, and as facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import Field

from orchestrator.core import words
from orchestrator.core.models import Execution
from orchestrator.core.queue_flow import Work
from orchestrator.core.queue_terms import DEFAULT
from orchestrator.core.shown.documents import Shown
from orchestrator.core.shown.values import At, Fact, Link, State, said
from orchestrator.queues import figures
from orchestrator.queues.definitions import GATE_DEFAULTS
from orchestrator.queues.figures import Figures, Server, Slots
from orchestrator.queues.gates import condition
from orchestrator.queues.models import Gate, QueueEvent, WorkQueue
from orchestrator.queues.states import KINDS

EVENTS_SHOWN = 20


class ServerOut(Shown):
    """A worker that serves a queue, or its retry lane."""

    worker: str
    subscription: str = Field(description="The queue, or `NAME:retry` for its retry lane.")
    slots: int = Field(description="The most that it runs of it at once.")
    state: str = Field(description="Its status, or `stale` if its heartbeat is too old.")
    paused_until: datetime | None


class QueueSummary(Shown):
    """A queue as listings show it."""

    name: str
    description: str
    state: str = Field(description="`open`, `paused`, `closed` (accepts nothing) or `retired`.")
    accepts: bool
    paused_at: datetime | None
    pause_reason: str
    paused_by: str
    waiting: int
    running: int = Field(description="What workers hold: sent to them, or started.")
    max_running: int | None
    oldest_seconds: float = Field(description="The age of what has waited longest, or 0.")
    per_minute: float = Field(description="Ends in the last minute.")
    served_by: list[ServerOut] = Field(description="Workers that are up and serve it.")
    has_gate: bool
    gate_problem: str = Field(
        description="Why its gate takes nothing in although it is open; empty if it does."
    )
    pack: str | None
    revision: int


class QueueEventOut(Shown):
    """Something that happened to a queue."""

    kind: str
    revision: int
    actor: str
    reason: str
    at: datetime


class QueueDetail(QueueSummary):
    """A queue with its definition, and what happened to it last."""

    action: str | None = Field(description="What it runs for requests that name no action.")
    priority: int
    deadline_seconds: float | None
    timeout_seconds: float | None
    retry_limit: int | None
    prefetch_buffer: int
    defer_seconds: float
    defer_pause_seconds: float
    health_check: str
    gate: dict[str, Any] | None = Field(description="Its door to AMQP, if it has one.")
    created_at: datetime
    updated_at: datetime
    retired_at: datetime | None
    events: list[QueueEventOut] = Field(description="The newest first.")


def all_of(queues: Iterable[WorkQueue], *, now: datetime) -> list[QueueSummary]:
    """Convert queues, each with its figures."""
    rows = list(queues)
    return _summaries(rows, figures.of([row.name for row in rows], now), now)


def all_and_default(
    queues: Iterable[WorkQueue], *, now: datetime, work: Work, slots: Slots
) -> list[QueueSummary]:
    """Convert queues, after the default one, which has no row; the rest is as `figures.of` takes
    it."""
    rows = list(queues)
    found = figures.of([DEFAULT, *(row.name for row in rows)], now, work=work, slots=slots)
    default = WorkQueue(name=DEFAULT, description="What names no queue.", revision=0)
    return _summaries([default, *rows], found, now)


def _summaries(
    rows: Sequence[WorkQueue], found: Mapping[str, Figures], now: datetime
) -> list[QueueSummary]:
    problems = _gate_problems(rows, now)
    return [QueueSummary(**_summary(row, found[row.name], problems, now)) for row in rows]


def detail(queue: WorkQueue, *, now: datetime, found: Figures | None = None) -> QueueDetail:
    """Convert one queue, as `changes.find` loads it; its figures are read if none are given."""
    found = found or figures.of([queue.name], now)[queue.name]
    return QueueDetail(
        **_summary(queue, found, _gate_problems([queue], now), now),
        action=queue.action.ref if queue.action else None,
        priority=queue.default_priority,
        gate=gate_of(queue),
        events=[QueueEventOut.model_validate(event) for event in events(queue)],
        **{name: getattr(queue, name) for name in COPIED},
    )


COPIED = (
    "deadline_seconds", "timeout_seconds", "retry_limit", "prefetch_buffer", "defer_seconds",
    "defer_pause_seconds", "health_check", "created_at", "updated_at", "retired_at",
)  # fmt: skip


def _gate_problems(queues: Iterable[WorkQueue], now: datetime) -> dict[str, str]:
    """The reasons why gates of these queues take nothing in, by the name of the queue."""
    if not any(gate_row(queue) for queue in queues):
        return {}
    return {each.queue: each.text for each in condition.cut_off(now=now)}


def _summary(
    queue: WorkQueue, found: Figures, gate_problems: Mapping[str, str], now: datetime
) -> dict[str, Any]:
    return {
        "name": queue.name,
        "description": queue.description,
        "state": queue.state,
        "accepts": queue.accepts,
        "paused_at": queue.paused_at,
        "pause_reason": queue.pause_reason,
        "paused_by": queue.paused_by,
        "waiting": found.waiting,
        "running": found.running,
        "max_running": queue.max_running,
        "oldest_seconds": found.oldest_seconds(now),
        "per_minute": found.per_minute,
        "served_by": [ServerOut.model_validate(server) for server in found.servers],
        "has_gate": gate_row(queue) is not None,
        "gate_problem": gate_problems.get(queue.name, ""),
        "pack": queue.pack.name if queue.pack else None,
        "revision": queue.revision,
    }


def gate_row(queue: WorkQueue) -> Gate | None:
    """The gate of a queue, if it has one."""
    gate: Gate | None = getattr(queue, "gate", None)
    return gate


def gate_of(queue: WorkQueue) -> dict[str, Any] | None:
    """The definition of its gate, by the keys of a queue file."""
    gate = gate_row(queue)
    if gate is None:
        return None
    return {name: getattr(gate, name) for name in ("input_queue", "divert", *GATE_DEFAULTS)}


def definition(queue: WorkQueue) -> dict[str, Any]:
    """The queue as a file defines it: what `apply` reads again."""
    own = {
        "name": queue.name,
        "description": queue.description,
        "accepts": queue.accepts,
        "action": queue.action.ref if queue.action else None,
        "priority": queue.default_priority,
        "max_running": queue.max_running,
        **{name: getattr(queue, name) for name in COPIED[:-3]},
        "gate": gate_of(queue),
    }
    return {key: value for key, value in own.items() if value is not None and value != ""}


def events(queue: WorkQueue) -> list[QueueEvent]:
    """The latest events of a queue, the newest first."""
    return list(QueueEvent.objects.filter(queue=queue).order_by("-pk")[:EVENTS_SHOWN])


# --- as facts ------------------------------------------------------------------------------------


def why(queue: QueueSummary) -> str:
    """The reasons why it starts nothing, or less; empty if there are none."""
    reasons = []
    if queue.paused_at is not None:
        reasons.append(f"paused by {queue.paused_by}: {queue.pause_reason}")
    if queue.state == "closed":
        reasons.append("accepts nothing")
    if queue.gate_problem:
        reasons.append(f"its gate takes nothing in: {queue.gate_problem}")
    if not queue.served_by and queue.state != "retired":
        reasons.append("no worker serves it")
    elif queue.served_by and all(server.paused_until for server in queue.served_by):
        reasons.append("waits for health: every worker that serves it has paused it")
    return "; ".join(reasons)


def situation(queue: QueueDetail, now: datetime) -> list[Fact]:
    """Its state, its figures, and who serves it."""
    limit = "" if queue.max_running is None else f" of at most {queue.max_running}"
    return said(
        [
            ("Queue", queue.name),
            ("Description", queue.description),
            ("State", State(queue.state, KINDS)),
            ("Why", why(queue)),
            ("Waiting", queue.waiting),
            ("Running", f"{queue.running}{limit}"),
            ("Oldest", words.span(queue.oldest_seconds) if queue.waiting else None),
            ("Ended in the last minute", f"{queue.per_minute:g}"),
            ("Served by", ", ".join(map(served, queue.served_by)) or "nobody"),
            ("Paused", At(queue.paused_at) if queue.paused_at else None),
            ("Retired", At(queue.retired_at) if queue.retired_at else None),
        ]
    )


def served(server: ServerOut | Server) -> str:
    """A server in one line, such as `w1 (4 slots)`."""
    lane = " of the retry lane" if server.subscription.endswith(":retry") else ""
    notes = [f"{server.slots} slots{lane}"]
    if server.state != "active":
        notes.append(server.state)
    if server.paused_until is not None:
        notes.append("has paused it")
    return f"{server.worker} ({', '.join(notes)})"


def rules(queue: QueueDetail) -> list[Fact]:
    """Its definition."""
    return said(
        [
            ("Action", queue.action),
            ("Priority", queue.priority),
            ("Deadline", _span(queue.deadline_seconds)),
            ("Time limit", _span(queue.timeout_seconds)),
            ("Retries", queue.retry_limit),
            ("Sent ahead", queue.prefetch_buffer),
            ("Most at once", queue.max_running),
            ("Health check", queue.health_check),
            ("Pack", queue.pack),
            ("Revision", queue.revision),
        ]
    )


def _span(seconds: float | None) -> str | None:
    return None if seconds is None else words.span(seconds)


def gate_facts(queue: QueueDetail) -> list[Fact]:
    """Its gate, key by key, without what is not set."""
    gate = queue.gate or {}
    return said([(key, _text(value)) for key, value in gate.items() if value not in ("", [], {})])


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list | dict) else str(value)


def of_execution(execution: Execution) -> list[Fact]:
    """Facts about the queue of an execution, for its page."""
    if execution.queue is None or execution.is_terminal:
        return []
    queue = WorkQueue.objects.filter(name=execution.queue).first()
    if queue is None:
        return []
    note = f"{queue.state}: {queue.pause_reason}" if queue.is_paused else queue.state
    return said([("Its queue", Link(queue, queue.name, note))])
