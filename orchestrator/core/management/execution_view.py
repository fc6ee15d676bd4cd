"""Executions as a terminal shows them: in a list, alone, and as they move."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator.core import words
from orchestrator.core.management import output
from orchestrator.core.models import DLQEntry, Execution, ExecutionEvent
from orchestrator.core.reasons import Reason
from orchestrator.core.states import WHO_MOVES_IT_ON, ExecutionStatus

LISTED = (
    "id",
    "action_ref",
    "status",
    "reason",
    "priority",
    "attempt",
    "retry_count",
    "worker_id",
    "pinned_worker_id",
    "wait_reason",
    "requested_by",
    "correlation_id",
    "idempotency_key",
    "created_at",
    "scheduled_at",
    "started_at",
    "cancel_requested_at",
    "ended_at",
    "start_by",
    "run_deadline_at",
    "next_retry_at",
    "deadline_at",
)
EVENT = ("event", "from_status", "to_status", "attempt", "actor", "reason", "at")
ID_SHOWN = 18
"""Characters of an id in a narrow table: they tell apart what was not made in one millisecond."""
LETTER = ("dlq_entry_uuid", "attempt", "dlq_reason", "detail", "original_queue", "dlq_timestamp")

S = ExecutionStatus
DUE: dict[str, tuple[str, set[ExecutionStatus]]] = {
    "next_retry_at": ("not scheduled before", {S.REQUESTED, S.SCHEDULING}),
    "start_by": ("starts by", {S.SCHEDULED}),
    "run_deadline_at": ("action ends by", {S.RUNNING, S.CANCELING}),
    "deadline_at": ("over by", set(WHO_MOVES_IT_ON)),
}
"""Each due time, and the statuses in which it acts."""


def listing(rows: Sequence[Execution], now: datetime) -> Table:
    made = output.table("id", "*action", "status", ">try", "*worker", ">took", "*reason")
    for row in rows:
        took = ((row.ended_at or now) - row.created_at).total_seconds()
        made.add_row(
            str(row.pk),
            output.plain(row.action_ref),
            output.status(row.status),
            str(row.attempt),
            output.plain(row.worker.name if row.worker else ""),
            words.span(took),
            output.plain(row.reason or row.wait_reason),
        )
    return made


def page(execution: Execution, now: datetime) -> Iterator[RenderableType]:
    """One execution: where it is and why, what is due, what happened, what came of it."""
    yield output.facts(_situation(execution))
    yield _heading("Due")
    yield output.facts(_due(execution, now))
    yield _heading("History")
    yield timeline(execution)
    letters = DLQEntry.objects.about(execution.pk).without_contents()
    if letters:
        yield _heading("Dead letters")
        yield dead_letters(letters)
    yield _heading("Parameters")
    yield output.pretty(execution.parameters)
    yield _heading("Result")
    yield output.pretty(execution.result) if execution.result is not None else Text("none yet")


def document(execution: Execution) -> dict[str, Any]:
    """One execution as JSON, with all that `page` shows."""
    letters = DLQEntry.objects.about(execution.pk).without_contents()
    return output.described(execution, LISTED) | {
        "worker": execution.worker.name if execution.worker else None,
        "timeout_seconds": execution.timeout_seconds,
        "queue_ttl_ms": execution.queue_ttl_ms,
        "scheduled_timeout_seconds": execution.scheduled_timeout_seconds,
        "worker_selector": execution.wanted_labels,
        "retry_policy": execution.wanted_retries,
        "parameters": execution.parameters,
        "result": execution.result,
        "history": [event_document(event) for event in ExecutionEvent.objects.of(execution.pk)],
        "dead_letters": [output.described(letter, LETTER) for letter in letters],
    }


def timeline(execution: Execution) -> Table:
    made = output.table("at", ">after", "what", ">try", "*by", "*reason")
    made.add_row(
        output.moment(execution.created_at, precise=True),
        "",
        output.status(S.REQUESTED),
        "",
        output.plain(execution.requested_by),
        "",
    )
    before = execution.created_at
    for event in ExecutionEvent.objects.of(execution.pk):
        made.add_row(
            output.moment(event.at, precise=True),
            words.span((event.at - before).total_seconds()),
            output.status(event.to_status),
            str(event.attempt),
            output.plain(event.actor),
            output.plain(event.reason),
        )
        before = event.at
    return made


def dead_letters(letters: Sequence[DLQEntry] | Any) -> Table:
    made = output.table(">id", "drained", ">try", "reason", "queue", "*detail")
    for letter in letters:
        made.add_row(
            str(letter.dlq_entry_uuid)[:ID_SHOWN],
            output.moment(letter.dlq_timestamp),
            str(letter.attempt or ""),
            letter.dlq_reason,
            output.plain(letter.original_queue),
            output.plain(letter.detail),
        )
    return made


def event_line(event: ExecutionEvent) -> Text:
    """One transition as one line, for who watches."""
    line = Text(f"{output.moment(event.at, precise=True)[11:]}  {event.execution_id}  ")
    line += output.status(event.from_status)
    line += Text(" -> ")
    line += output.status(event.to_status)
    line += Text(f"  {event.actor}") + Text(f"  {event.reason}" if event.reason else "")
    return line


def event_document(event: ExecutionEvent) -> dict[str, Any]:
    return output.described(event, EVENT)


def _situation(execution: Execution) -> list[tuple[str, RenderableType | None]]:
    facts: list[tuple[str, RenderableType | None]] = [
        ("execution", str(execution.pk)),
        ("action", output.plain(execution.action_ref)),
        ("status", output.status(execution.status)),
        ("moved on by", WHO_MOVES_IT_ON[S(execution.status)]),
        ("attempt", str(execution.attempt) if execution.attempt else "not dispatched yet"),
        ("retries", str(execution.retry_count or "")),
        ("worker", output.plain(execution.worker.name) if execution.worker else None),
        ("waits for", output.plain(execution.wait_reason) if execution.wait_reason else None),
    ]
    if execution.reason:
        # an open execution keeps the reason of its last attempt
        name = "reason" if execution.is_terminal else "last attempt"
        facts.append((name, _reason(execution.reason)))
    if execution.started_at:
        until = execution.ended_at or execution.started_at
        if execution.ended_at:
            facts.append(("ran", words.span((until - execution.started_at).total_seconds())))
    facts += [
        ("time limit", words.span(execution.timeout_seconds)),
        ("longest wait in a queue", words.span(execution.dispatch_ttl_ms / 1000)),
        ("workers with", output.plain(words.labels(execution.wanted_labels))),
        ("retry policy", output.plain(words.labels(execution.wanted_retries))),
        ("requested by", output.plain(execution.requested_by)),
        ("correlation id", output.plain(execution.correlation_id or "")),
        ("idempotency key", output.plain(execution.idempotency_key or "")),
    ]
    return [(name, value) for name, value in facts if str(value or "")]


def _reason(code: str) -> str:
    try:
        reason = Reason(code)
    except ValueError:
        return code
    return f"{code}: {reason.text} ({reason.known.text})"


def _due(execution: Execution, now: datetime) -> Iterator[tuple[str, RenderableType]]:
    for field, (name, statuses) in DUE.items():
        at: datetime | None = getattr(execution, field)
        if at is None:
            continue
        line = Text(f"{output.moment(at)} UTC  ")
        if execution.is_terminal or execution.status not in statuses:
            line += Text("no longer acts", style="bright_black")
        else:
            line += output.due(at, now)
        yield name, line


def _heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold")
