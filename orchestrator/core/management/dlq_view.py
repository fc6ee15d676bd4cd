"""DLQ entries in the terminal: lists, pages, statistics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from orchestrator.core import words
from orchestrator.core.authority import Principal
from orchestrator.core.management import output
from orchestrator.core.management.output import YEAR
from orchestrator.core.management.tables import Table
from orchestrator.core.models import DLQEntry, InvestigationQueue
from orchestrator.core.models.dead_letters import RESOLUTION_KINDS
from orchestrator.core.shown import investigations as shown


def listing(entries: Sequence[DLQEntry], *, seen_by: Principal) -> Table:
    table = Table("id", "opened", "reason", "resolution", "*about", "*detail")
    for entry in entries:
        table.add_row(
            str(entry.dlq_entry_uuid),
            output.moment(entry.dlq_timestamp)[YEAR:],
            output.line(entry.dlq_reason),
            output.status(entry.resolution_status, RESOLUTION_KINDS),
            output.line(_about(entry)),
            output.line(shown.detail(entry, seen_by=seen_by)),
        )
    return table


def _about(entry: DLQEntry | InvestigationQueue) -> str:
    """The subject, with its name."""
    return f"{entry.about} {entry.subject_name}".strip()


def stats(rows: Sequence[shown.DLQReasonStats], now: datetime) -> Table:
    """The counts, in the given order; there is at least one row."""
    columns = [heading for heading, _ in _names(rows[0])]
    counts = (">pending", ">resolved", ">failed", ">cancelled", ">all", ">oldest", ">closed in")
    table = Table(*columns, *counts)
    for row in rows:
        minutes = row.avg_resolution_time_minutes
        table.add_row(
            *(output.line(name) for _, name in _names(row)),
            *(f"{n:,}" for n in (row.pending, row.manually_resolved, row.permanent_failures)),
            *(f"{n:,}" for n in (row.cancelled, row.total_entries)),
            words.span((now - row.oldest_entry).total_seconds()),
            "" if minutes is None else words.span(minutes * 60),
        )
    return table


def _names(row: shown.DLQReasonStats) -> Iterator[tuple[str, str]]:
    """The reason and the group of a row, each with the heading of its column."""
    yield "reason", row.dlq_reason
    if isinstance(row, shown.DLQSubjectStats):
        yield "*about", f"{row.subject_kind} {row.subject_name}".strip() or "a letter"
    if isinstance(row, shown.DLQNamespaceStats):
        yield "namespace", row.namespace_name
    if isinstance(row, shown.DLQQueueStats):
        yield "queue", row.original_queue
    if isinstance(row, shown.DLQHourStats):
        yield "hour", output.moment(row.hour)


def queue(rows: Sequence[InvestigationQueue], *, seen_by: Principal) -> Table:
    table = Table("id", ">score", ">waits", "reason", "*about", "*detail")
    for row in rows:
        table.add_row(
            str(row.dlq_entry_uuid),
            f"{row.priority_score:,.0f}",
            words.span(row.minutes_in_dlq * 60),
            row.dlq_reason,
            output.line(_about(row)),
            output.line(shown.detail(row, seen_by=seen_by)),
        )
    return table


def page(entry: DLQEntry, now: datetime, *, seen_by: Principal) -> Iterator[RenderableType]:
    """The page of one entry: its situation, its notes, and everything that was stored."""
    about = ("About", _about(entry))
    yield output.facts([*shown.situation(entry, now, seen_by=seen_by), about])
    if entry.notes:
        yield Text("\nNotes", style="bold")
        notes = Table("at", "by", "*note")
        for note in shown.notes(entry):
            notes.add_row(*map(output.plain, note))
        yield notes
    if entry.x_death:
        yield Text("\nx-death: the broker's record, newest first", style="bold")
        yield _deaths(shown.x_death(entry))
    if entry.metadata:
        yield Text("\nMetadata", style="bold")
        yield output.pretty(shown.metadata(entry))
    if entry.headers:
        yield Text("\nHeaders", style="bold")
        yield output.pretty(shown.headers(entry, seen_by=seen_by))
    if entry.snapshot:
        yield Text("\nSnapshot", style="bold")
        yield output.pretty(shown.snapshot(entry, seen_by=seen_by))
    if (body := shown.body(entry, seen_by=seen_by)) is not None:
        yield Text(f"\nBody, {len(entry.raw_body or b''):,} bytes", style="bold")
        yield Text(body if isinstance(body, str) else "\n".join(words.hex_lines(body)))


def _deaths(x_death: Any) -> Table:
    table = Table(">count", "reason", "queue", "*exchange", "*routing keys", "*time")
    for death in shown.deaths(x_death):
        table.add_row(*map(output.plain, death))
    return table
