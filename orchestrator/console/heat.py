"""The fleet slot by slot: what each slot does, and how long ago its worker was heard of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.urls import reverse

from orchestrator.console.look import Held, Look
from orchestrator.core import words
from orchestrator.core.models import Worker
from orchestrator.core.models.fleet import KINDS
from orchestrator.core.words import Kind

LINKED_MAX = 1_000
"""Cells that are links. A fleet of more slots has plain ones, a tenth of the bytes."""
URGENCY = (Kind.DANGER, Kind.WARNING)
CELLS_MAX = 64
"""Of one worker that are drawn."""


@dataclass(frozen=True)
class Cell:
    """One slot, or an execution that waits for one."""

    kind: str
    """`runs`, `waits` or `free`."""
    text: str = ""
    url: str = ""


@dataclass(frozen=True)
class Row:
    """A worker with its slots."""

    worker: Worker
    cells: Sequence[Cell]
    running: int
    waiting: int
    state: str
    kind: Kind
    heartbeat: str
    heartbeat_kind: Kind
    more: int
    """Cells that are not drawn."""
    is_linked: bool
    """True if its cells lead to their executions."""

    @property
    def load(self) -> str:
        text = f"{self.running} of {self.worker.capacity}"
        return f"{text}, {self.waiting:,} waiting" if self.waiting else text

    @property
    def labels(self) -> str:
        return words.labels(self.worker.labels)

    @property
    def note(self) -> str:
        worker = self.worker
        reasons = [worker.status_reason] if worker.status_reason else []
        if worker.cordoned:
            reasons.append(worker.cordon_reason or "cordoned")
        return "; ".join(reasons)


@dataclass(frozen=True)
class Group:
    """Workers with the same host, or the same value of a label."""

    name: str
    rows: Sequence[Row]


@dataclass(frozen=True)
class Sum:
    """The fleet in four numbers."""

    workers: int
    up: int
    slots: int
    running: int

    @property
    def percent(self) -> int:
        return round(100 * self.running / self.slots) if self.slots else 0


def summed(look: Look) -> Sum:
    """Count workers that are up, their slots, and what runs in these."""
    up = [each for each in look.workers if each.is_fresh(look.now) and each.is_up]
    return Sum(
        workers=len(look.workers),
        up=len(up),
        slots=sum(each.capacity for each in up),
        running=sum(each.is_started for worker in up for each in look.held_by(worker)),
    )


def rows(look: Look) -> list[Row]:
    """All workers, by name."""
    slots = sum(each.capacity for each in look.workers)
    is_linked = slots <= LINKED_MAX and look.may("executions.read")
    return [row(worker, look, is_linked=is_linked) for worker in look.workers]


def few(look: Look, most: int) -> list[Row]:
    """The urgent ones alone, by name, without links."""
    chosen = urgent(look, most)
    return [row(each, look, is_linked=False) for each in look.workers if each.pk in chosen]


def urgent(look: Look, most: int) -> set[int]:
    """The ids of so many workers: those that are not well, and then those that have most to do."""
    ordered = sorted(look.workers, key=lambda each: _order(each, look))
    return {each.pk for each in ordered[:most]}


def _order(worker: Worker, look: Look) -> tuple[int, int]:
    _, kind = _state(worker, look.now)
    urgency = URGENCY.index(kind) if kind in URGENCY else len(URGENCY)
    return urgency, -len(look.held_by(worker))


def row(worker: Worker, look: Look, *, is_linked: bool) -> Row:
    held = look.held_by(worker)
    running = [each for each in held if each.is_started]
    waiting = [each for each in held if not each.is_started]
    free = max(0, worker.capacity - len(running)) if worker.is_up else 0
    cells = [
        *(_cell("runs", each, look.now, is_linked=is_linked) for each in running),
        *[Cell("free")] * free,
        *(_cell("waits", each, look.now, is_linked=is_linked) for each in waiting),
    ]
    state, kind = _state(worker, look.now)
    return Row(
        worker=worker,
        cells=cells[:CELLS_MAX],
        more=max(0, len(cells) - CELLS_MAX),
        running=len(running),
        waiting=len(waiting),
        state=state,
        kind=kind,
        heartbeat=_heartbeat(worker, look.now),
        heartbeat_kind=KINDS.get(worker.heartbeat_state(look.now), Kind.PLAIN),
        is_linked=is_linked,
    )


def grouped(rows: Sequence[Row], by: str) -> list[Group]:
    """Group by `host`, or by the label of this name; in order of the names."""
    groups: dict[str, list[Row]] = {}
    for each in rows:
        worker = each.worker
        name = worker.host if by == "host" else str(worker.labels.get(by, ""))
        groups.setdefault(name, []).append(each)
    return [Group(name or f"no {by}", groups[name]) for name in sorted(groups)]


def label_names(workers: Sequence[Worker]) -> list[str]:
    return sorted({name for worker in workers for name in worker.labels})


def _cell(kind: str, held: Held, now: datetime, *, is_linked: bool) -> Cell:
    if not is_linked:
        return Cell(kind)
    text = f"{held.action_ref} {kind}"
    if held.started_at:
        text += f" for {words.span((now - held.started_at).total_seconds())}"
    return Cell(kind, text, reverse("console:execution", args=[held.id]))


def _heartbeat(worker: Worker, now: datetime) -> str:
    if worker.heartbeat_at is None:
        return "never"
    return f"{words.span((now - worker.heartbeat_at).total_seconds())} ago"


def _state(worker: Worker, now: datetime) -> tuple[str, Kind]:
    """What matters most of its state, in a word."""
    heartbeat = worker.heartbeat_state(now)
    if heartbeat == "stale":
        return heartbeat, Kind.DANGER
    if not worker.is_up:
        return "down", Kind.PLAIN
    if worker.cordoned and worker.status == Worker.Status.ACTIVE:
        return "cordoned", Kind.WARNING
    if worker.failed_checks:
        return "unfit", Kind.DANGER
    return worker.status, KINDS.get(worker.status, Kind.PLAIN)
