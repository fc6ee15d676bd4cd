"""DLQ entries for people and for scripts: lists, one whole, statistics."""

from __future__ import annotations

import base64
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

LISTED = (
    "dlq_entry_uuid",
    "subject_kind",
    "subject_id",
    "subject_name",
    "attempt",
    "original_state",
    "dlq_reason",
    "detail",
    "dlq_timestamp",
    "opened_by",
    "occurrences",
    "last_seen_at",
    "resolution_status",
    "resolved_at",
    "resolved_by",
    "original_exchange",
    "original_queue",
    "original_routing_key",
)
STATS = (
    "dlq_reason",
    "total_entries",
    "pending",
    "manually_resolved",
    "permanent_failures",
    "cancelled",
    "oldest_entry",
    "newest_entry",
    "avg_resolution_time_minutes",
)
QUEUE = (
    "dlq_entry_uuid",
    "subject_kind",
    "subject_id",
    "subject_name",
    "dlq_reason",
    "original_state",
    "detail",
    "dlq_timestamp",
    "minutes_in_dlq",
    "priority_score",
)
WHOLE = (*LISTED, "snapshot", "notes", "metadata", "headers", "x_death")


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


def document(entry: DLQEntry) -> dict[str, Any]:
    """One entry as JSON, with all that `page` shows."""
    body = None if entry.raw_body is None else base64.b64encode(entry.raw_body).decode()
    return output.described(entry, WHOLE) | {"raw_body_base64": body}


def page(entry: DLQEntry) -> Iterator[RenderableType]:
    """One entry: what happened, who looked into it, and all that was kept."""
    yield output.facts(
        [
            ("DLQ entry", str(entry.dlq_entry_uuid)),
            ("reason", entry.dlq_reason),
            ("detail", output.plain(entry.detail)),
            ("about", output.plain(f"{entry.about} {entry.subject_name}")),
            ("attempt", str(entry.attempt or "")),
            ("it was", output.status(entry.original_state)),
            ("from queue", output.plain(entry.original_queue)),
            ("from exchange", output.plain(entry.original_exchange)),
            ("routing key", output.plain(entry.original_routing_key)),
            ("opened", f"{output.moment(entry.dlq_timestamp)} UTC by {entry.opened_by or '?'}"),
            ("last seen", _last_seen(entry)),
            ("resolution", output.status(entry.resolution_status, RESOLUTION_KINDS)),
            ("closed", _closed(entry)),
        ]
    )
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


def _last_seen(entry: DLQEntry) -> str:
    if entry.last_seen_at is None or entry.occurrences == 1:
        return ""
    return f"{output.moment(entry.last_seen_at)} UTC, {entry.occurrences:,} in all"


def _closed(entry: DLQEntry) -> Text | None:
    if entry.resolved_at is None:
        return None
    return output.plain(f"{output.moment(entry.resolved_at)} UTC by {entry.resolved_by}")


def _deaths(deaths: Sequence[dict[str, Any]]) -> Table:
    made = output.table(">count", "reason", "queue", "*exchange", "*routing keys", "*time")
    for death in deaths:
        keys = death.get("routing-keys")
        cells = [death.get(name, "") for name in ("count", "reason", "queue", "exchange")]
        cells += [", ".join(map(str, keys)) if isinstance(keys, list) else keys or ""]
        made.add_row(*map(output.plain, [*cells, death.get("time", "")]))
    return made
