"""The fleet slot by slot: what each slot does, and how long ago its worker was heard of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from orchestrator.console import addresses
from orchestrator.console.look import NO_LOAD, Held, Load, Look
from orchestrator.core import words
from orchestrator.core.models import Worker
from orchestrator.core.models.fleet import KINDS
from orchestrator.core.words import Kind

LINKED_MAX = 1_000
"""Cells that are links. A fleet of more slots has plain ones, a tenth of the bytes."""
URGENCY = (Kind.DANGER, Kind.WARNING)
CELLS_MAX = 64
"""Of one worker that are drawn."""


class Cell(NamedTuple):
    """One slot, or an execution that waits for one."""

    kind: str
    """`runs`, `waits` or `free`."""
    text: str = ""
    url: str = ""


RUNS, WAITS, FREE = Cell("runs"), Cell("waits"), Cell("free")
MARKS = {
    "runs": mark_safe("<i></i>"),  # a thousand times a page, so it has no class
    "waits": mark_safe('<i class="waits"></i>'),
    "free": mark_safe('<i class="free"></i>'),
}
"""The HTML of cells that are no links."""


@dataclass(frozen=True)
class Row:
    """A worker with its slots."""

    worker: Worker
    now: datetime
    cells: Sequence[Cell]
    more: int
    """Cells that are not drawn."""
    load_now: Load
    heartbeat_state: str
    state: str
    kind: Kind
    is_linked: bool
    """True if its cells lead to their executions."""

    @property
    def url(self) -> str:
        return addresses.of_worker(self.worker.name)

    @property
    def running(self) -> int:
        return self.load_now.running

    @property
    def waiting(self) -> int:
        return self.load_now.waiting

    @property
    def load(self) -> str:
        text = f"{self.running} of {self.worker.capacity}"
        return f"{text}, {self.waiting:,} waiting" if self.waiting else text

    @property
    def heartbeat(self) -> str:
        at = self.worker.heartbeat_at
        return "never" if at is None else f"{words.span((self.now - at).total_seconds())} ago"

    @property
    def heartbeat_kind(self) -> Kind:
        return KINDS.get(self.heartbeat_state, Kind.PLAIN)

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

    @property
    def marks(self) -> SafeString:
        """Its cells as HTML."""
        drawn = format_html_join("", "{}", ((_mark(each),) for each in self.cells))
        return format_html("{} +{}", drawn, self.more) if self.more else drawn

    @property
    def drawn(self) -> SafeString:
        """Its cells, for who sees them and for who does not. A template of each of a thousand
        workers would take a second."""
        if self.is_linked:
            return format_html('<span class="cells">{}</span>', self.marks)
        pattern = '<span class="cells" role="img" aria-label="{}">{}</span>'
        return format_html(pattern, self.load, self.marks)

    @property
    def item(self) -> SafeString:
        """Its place in the map."""
        return format_html(
            '<li id="heat-{}" class="beat-{}"><a href="{}">{}</a> {} '
            '<span class="badge {}">{}</span></li>',
            self.worker.pk,
            self.heartbeat_kind or "plain",
            self.url,
            self.worker.name,
            self.drawn,
            self.kind,
            self.state,
        )


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


def summed(rows: Sequence[Row]) -> Sum:
    """Count workers that are up, their slots, and what runs in these."""
    up = [each for each in rows if each.heartbeat_state == "fresh"]
    return Sum(
        workers=len(rows),
        up=len(up),
        slots=sum(each.worker.capacity for each in up),
        running=sum(each.running for each in up),
    )


def rows(look: Look) -> list[Row]:
    """All workers, by name; of a small fleet with links."""
    slots = sum(each.capacity for each in look.workers)
    if slots <= LINKED_MAX and look.may("executions.read"):
        return [linked(worker, look) for worker in look.workers]
    return all_plain(look)


def all_plain(look: Look) -> list[Row]:
    """All workers, by name, without links."""
    return [plain(worker, look) for worker in look.workers]


def urgent(rows: Sequence[Row], most: int) -> list[Row]:
    """So many of them, in their order: those that are not well, and then those that have most to
    do."""
    chosen = sorted(rows, key=_order)[:most]
    ids = {each.worker.pk for each in chosen}
    return [each for each in rows if each.worker.pk in ids]


def _order(row: Row) -> tuple[int, int]:
    urgency = URGENCY.index(row.kind) if row.kind in URGENCY else len(URGENCY)
    return urgency, -sum(row.load_now)


def linked(worker: Worker, look: Look) -> Row:
    """A worker whose cells lead to their executions."""
    held = look.held.get(worker.pk, [])
    running = [_cell("runs", each, look.now) for each in held if each.is_started]
    waiting = [_cell("waits", each, look.now) for each in held if not each.is_started]
    return _row(worker, look, running, waiting, Load(len(running), len(waiting)), is_linked=True)


def plain(worker: Worker, look: Look) -> Row:
    """A worker whose cells lead nowhere."""
    load = look.loads.get(worker.pk, NO_LOAD)
    running, waiting = (
        [kind] * min(n, CELLS_MAX) for kind, n in zip((RUNS, WAITS), load, strict=True)
    )
    return _row(worker, look, running, waiting, load, is_linked=False)


def _row(
    worker: Worker,
    look: Look,
    running: Sequence[Cell],
    waiting: Sequence[Cell],
    load: Load,
    *,
    is_linked: bool,
) -> Row:
    heartbeat = worker.heartbeat_state(look.now)
    state, kind = _state(worker, heartbeat)
    free = max(0, worker.capacity - load.running) if worker.is_up else 0
    cells = [*running, *[FREE] * min(free, CELLS_MAX), *waiting]
    return Row(
        worker=worker,
        now=look.now,
        cells=cells[:CELLS_MAX],
        more=max(0, sum(load) + free - CELLS_MAX),
        load_now=load,
        heartbeat_state=heartbeat,
        state=state,
        kind=kind,
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


def _cell(kind: str, held: Held, now: datetime) -> Cell:
    text = f"{held.action_ref} {kind}"
    if held.started_at:
        text += f" for {words.span((now - held.started_at).total_seconds())}"
    return Cell(kind, text, reverse("console:execution", args=[held.id]))


def _mark(cell: Cell) -> SafeString:
    if not cell.url:
        return MARKS[cell.kind]
    return format_html(
        '<a class="cell {}" href="{}" aria-label="{}" title="{}"></a>',
        cell.kind, cell.url, cell.text, cell.text,
    )  # fmt: skip


def _state(worker: Worker, heartbeat: str) -> tuple[str, Kind]:
    """The part of its state that matters most, in a word."""
    if heartbeat == "stale":
        return heartbeat, Kind.DANGER
    if not worker.is_up:
        return "down", Kind.PLAIN
    if worker.cordoned and worker.status == Worker.Status.ACTIVE:
        return "cordoned", Kind.WARNING
    if worker.failed_checks:
        return "unfit", Kind.DANGER
    return worker.status, KINDS.get(worker.status, Kind.PLAIN)
