"""Executions in the terminal: lists, pages, and transitions as they happen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator.core import words
from orchestrator.core.authority import Principal
from orchestrator.core.management import output
from orchestrator.core.models import DLQEntry, Execution, ExecutionEvent
from orchestrator.core.shown import executions as shown

ID_SHOWN = 18
"""Characters of an id in a narrow table: rows of different milliseconds differ in them."""


def listing(rows: Sequence[Execution], now: datetime) -> Table:
    table = output.table("id", "*action", "status", ">try", "*worker", ">took", "*reason")
    for row in rows:
        took = ((row.ended_at or now) - row.created_at).total_seconds()
        table.add_row(
            str(row.pk),
            output.plain(row.action_ref),
            output.status(row.status),
            str(row.attempt),
            output.plain(row.worker.name if row.worker else ""),
            words.span(took),
            output.plain(row.reason or row.wait_reason),
        )
    return table


def page(execution: Execution, now: datetime, *, seen_by: Principal) -> Iterator[RenderableType]:
    """The page of one execution: its situation, due times, history and result."""
    yield output.facts(shown.situation(execution, now, seen_by=seen_by))
    yield _heading("Due")
    yield output.facts(shown.due(execution, now))
    yield _heading("Times")
    yield output.facts(shown.times(execution, now))
    yield _heading("History")
    yield output.timeline(shown.timeline(execution, shown.history(execution)))
    if letters := shown.letters(execution):
        yield _heading("Dead letters")
        yield dead_letters(letters)
    yield _heading("Parameters")
    yield output.pretty(shown.parameters(execution, seen_by=seen_by))
    yield _heading("Result")
    result = shown.result(execution, seen_by=seen_by)
    yield Text("none yet") if result is None else output.pretty(result)
    yield _heading("Request")
    yield output.facts(shown.request(execution))


def dead_letters(letters: Sequence[DLQEntry]) -> Table:
    table = output.table(">id", "drained", ">try", "reason", "queue", "*detail")
    for letter in letters:
        table.add_row(
            str(letter.dlq_entry_uuid)[:ID_SHOWN],
            output.moment(letter.dlq_timestamp),
            str(letter.attempt or ""),
            letter.dlq_reason,
            output.plain(letter.original_queue),
            output.plain(letter.detail),
        )
    return table


def event_line(event: ExecutionEvent) -> Text:
    """One transition as one line, for `watch`."""
    line = Text(f"{output.moment(event.at, precise=True)[11:]}  {event.execution_id}  ")
    line += output.status(event.from_status)
    line += Text(" -> ")
    line += output.status(event.to_status)
    line += Text(f"  {event.actor}") + Text(f"  {event.reason}" if event.reason else "")
    return line


def _heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold")
