"""Executions in the terminal: lists, pages, and transitions as they happen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.text import Text

from orchestrator.core import words
from orchestrator.core.authority import Principal
from orchestrator.core.management import output
from orchestrator.core.management.output import YEAR
from orchestrator.core.management.tables import Table
from orchestrator.core.models import DLQEntry, Execution, ExecutionEvent
from orchestrator.core.shown import executions as shown
from orchestrator.core.states import ExecutionStatus


def listing(rows: Sequence[Execution], now: datetime, *, seen_by: Principal) -> Table:
    """A row each. `waited`: until its latest run began; `ran`: that run, until its end was
    recorded: when a worker is lost, nobody saw it."""
    table = Table(
        *("id", "created", "action", "status", ">try", "worker", ">waited", ">ran", "*why")
    )
    messages = shown.messages(rows, seen_by=seen_by)
    for row in rows:
        until = row.ended_at or now
        table.add_row(
            str(row.pk),
            output.moment(row.created_at)[YEAR:],
            output.line(row.action_ref),
            output.status(row.status),
            str(row.attempt or ""),
            output.line(row.worker_name or ""),
            words.span(((row.started_at or until) - row.created_at).total_seconds()),
            words.span((until - row.started_at).total_seconds()) if row.started_at else "",
            output.line(_why(row, messages.get(row.pk, ""))),
        )
    return table


def _why(row: Execution, message: str) -> str:
    """The reason of its wait, or that of its end with the message of its last attempt: before that,
    there is only the message of an attempt before. What went well needs no words."""
    if row.status == ExecutionStatus.COMPLETED:
        return ""
    if not row.is_terminal:
        return row.wait_reason
    return f"{row.reason}: {message}" if row.reason and message else row.reason


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
    table = Table("id", "drained", ">try", "reason", "queue", "*detail")
    for letter in letters:
        table.add_row(
            str(letter.dlq_entry_uuid),
            output.moment(letter.dlq_timestamp),
            str(letter.attempt or ""),
            letter.dlq_reason,
            output.line(letter.original_queue),
            output.line(letter.detail),
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
