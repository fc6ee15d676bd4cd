"""An overview of the installation from a few cheap reads, and its tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Count
from rich import box
from rich.table import Table
from rich.text import Text

from orchestrator.core import words
from orchestrator.core.management import output
from orchestrator.core.models import DLQEntry, Execution, Worker
from orchestrator.core.models.time_ordered import uuid7_floor
from orchestrator.core.states import OPEN, TERMINAL, ExecutionStatus

COUNT_LIMIT = 100_000
"""The most ended executions, or DLQ entries, that are counted."""

RECENT = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class WorkerLine:
    """A worker as the tables show it."""

    name: str
    status: str
    status_reason: str
    silent_seconds: float | None
    """The age of its heartbeat; None if it never had one."""
    held: int
    capacity: int


@dataclass(frozen=True, kw_only=True)
class Overview:
    """The state of the installation at one moment."""

    workers: Sequence[WorkerLine]
    open: Mapping[str, int]
    ended: Mapping[str, int]
    """The executions created within the last hour that have ended, by status."""
    dlq_entries: int


def read(*, now: datetime) -> Overview:
    """Read the overview. Raises DatabaseError."""
    return Overview(
        workers=read_workers(now=now),
        open=count_open(),
        ended=_count_ended_recently(now),
        dlq_entries=DLQEntry.objects.order_by()[:COUNT_LIMIT].count(),
    )


def read_workers(*, now: datetime) -> list[WorkerLine]:
    """Every worker of this installation, with its load."""
    held = Execution.objects.load_by_worker()
    return [
        WorkerLine(
            name=worker.name,
            status=worker.status,
            status_reason=worker.status_reason,
            silent_seconds=(now - worker.heartbeat_at).total_seconds()
            if worker.heartbeat_at
            else None,
            held=held.get(worker.pk, 0),
            capacity=worker.capacity,
        )
        for worker in Worker.objects.all()
    ]


def count_open() -> dict[str, int]:
    """Count the open executions by status. Exact: the partial index holds only these."""
    rows = Execution.objects.open().order_by().values_list("status").annotate(Count("pk"))
    return _in_order(dict(rows), OPEN)


def _count_ended_recently(now: datetime) -> dict[str, int]:
    # ids are in order of time, so this reads the newest rows through the primary key
    newest = Execution.objects.filter(pk__gte=uuid7_floor(now - RECENT)).order_by("-pk")
    return _in_order(Counter(newest.values_list("status", flat=True)[:COUNT_LIMIT]), TERMINAL)


def _in_order(counts: Mapping[str, int], wanted: frozenset[ExecutionStatus]) -> dict[str, int]:
    return {status.value: counts.get(status, 0) for status in ExecutionStatus if status in wanted}


# --- tables ------------------------------------------------------------------------------------


def new_table(title: str, *headings: str, right: Sequence[str] = ()) -> Table:
    table = Table(
        title=title or None, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD
    )
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left", no_wrap=True)
    return table


def worker_table(lines: Sequence[WorkerLine]) -> Table:
    right = ("heartbeat", "holds", "slots")
    table = new_table("Workers", "name", "status", *right, "why", right=right)
    for line in lines:
        table.add_row(
            output.plain(line.name),
            output.status(line.status),
            silence(line),
            str(line.held),
            str(line.capacity),
            Text.assemble(output.plain(line.status_reason), style="dim"),
        )
    return table


def execution_table(overview: Overview) -> Table:
    table = new_table("Executions", "open", "now", "ended, last hour", "", right=("now", ""))
    ended = list(overview.ended.items())
    for (status, count), end in zip(overview.open.items(), ended, strict=True):
        table.add_row(status, f"{count:,}", output.status(end[0]), f"{end[1]:,}")
    table.add_section()
    table.add_row(
        "all", f"{sum(overview.open.values()):,}", "DLQ entries", f"{overview.dlq_entries:,}"
    )
    return table


def silence(line: WorkerLine) -> Text:
    if line.silent_seconds is None:
        return Text("never", "dim")
    late = line.silent_seconds > 2 * settings.MUSTER.heartbeat_interval_seconds
    style = "dim" if line.status == Worker.Status.INACTIVE else "red" if late else ""
    return Text(f"{words.span(line.silent_seconds)} ago", style)
