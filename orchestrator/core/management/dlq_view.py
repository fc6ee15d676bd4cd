"""DLQ entries for people and for scripts: lists, one whole, statistics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator.core import words
from orchestrator.core.management import output
from orchestrator.core.management.execution_view import ID_SHOWN
from orchestrator.core.models import DLQDashboard, DLQEntry, InvestigationQueue
from orchestrator.core.models.dead_letters import RESOLUTION_KINDS
from orchestrator.core.shown import investigations as shown


def listing(entries: Sequence[DLQEntry], now: datetime) -> Table:
    made = output.table("id", ">opened", "reason", "resolution", "*about")
    for entry in entries:
        made.add_row(
            str(entry.dlq_entry_uuid)[:ID_SHOWN],
            words.span((now - entry.dlq_timestamp).total_seconds()),
            output.plain(entry.dlq_reason),
            output.status(entry.resolution_status, RESOLUTION_KINDS),
            output.plain(_about(entry)),
        )
    return made


def _about(entry: DLQEntry) -> str:
    """Its subject, as short as can be told apart."""
    if entry.subject_id is None:
        return entry.about
    return f"{entry.subject_kind} {str(entry.subject_id)[:ID_SHOWN]} {entry.subject_name}"


def stats(rows: Sequence[DLQDashboard], now: datetime) -> Table:
    made = output.table(
        "reason", ">pending", ">resolved", ">failed", ">cancelled", ">all", ">oldest", ">closed in"
    )
    for row in rows:
        minutes = row.avg_resolution_time_minutes
        made.add_row(
            row.dlq_reason,
            *(f"{n:,}" for n in (row.pending, row.manually_resolved, row.permanent_failures)),
            *(f"{n:,}" for n in (row.cancelled, row.total_entries)),
            words.span((now - row.oldest_entry).total_seconds()),
            "" if minutes is None else words.span(minutes * 60),
        )
    return made


def queue(rows: Sequence[InvestigationQueue]) -> Table:
    made = output.table("id", ">score", ">waits", "reason", "*about")
    for row in rows:
        made.add_row(
            str(row.dlq_entry_uuid)[:ID_SHOWN],
            f"{row.priority_score:,.0f}",
            words.span(row.minutes_in_dlq * 60),
            row.dlq_reason,
            output.plain(row.about),
        )
    return made


def page(entry: DLQEntry, now: datetime) -> Iterator[RenderableType]:
    """One entry: what happened, who looked into it, and all that was kept."""
    about = ("About", f"{entry.about} {entry.subject_name}".strip())
    yield output.facts([*shown.situation(entry, now), about])
    if entry.notes:
        yield Text("\nNotes", style="bold")
        made = output.table("at", "by", "*note")
        for note in entry.notes:
            made.add_row(*(output.plain(note.get(name, "")) for name in ("at", "by", "text")))
        yield made
    if entry.x_death:
        yield Text("\nx-death: the broker's account, newest first", style="bold")
        yield _deaths(entry.x_death)
    kept = {"Metadata": entry.metadata, "Headers": entry.headers, "Snapshot": entry.snapshot}
    for name, value in kept.items():
        if value:
            yield Text(f"\n{name}", style="bold")
            yield output.pretty(value)
    if entry.raw_body is not None:
        yield Text(f"\nBody, {len(entry.raw_body):,} bytes", style="bold")
        yield Text("\n".join(words.hex_lines(bytes(entry.raw_body))))


def _deaths(x_death: Any) -> Table:
    made = output.table(">count", "reason", "queue", "*exchange", "*routing keys", "*time")
    for death in shown.deaths(x_death):
        made.add_row(*map(output.plain, death))
    return made
