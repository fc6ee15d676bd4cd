"""The columns of the list of executions: which of them are shown is in the address."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.utils import timezone
from django.utils.html import format_html

from orchestrator.console import draw
from orchestrator.core import words
from orchestrator.core.models import Execution
from orchestrator.core.models.execution_sets import BACKLOG

MESSAGE_MAX = 160


class Cell(NamedTuple):
    """One value of a row."""

    html: Any
    kind: str = ""
    """Of its class."""


class Listed(NamedTuple):
    """An execution, what was said at its end, and the time of the look."""

    execution: Execution
    message: str
    now: datetime


class Column(NamedTuple):
    """A column: its name in the address, its heading, and what it shows."""

    name: str
    title: str
    draw: Callable[[Listed], Any]
    is_default: bool = True


def _status(row: Listed) -> Any:
    return draw.badge(row.execution.status, words.kind_of(row.execution.status))


def _message(row: Listed) -> str:
    text = row.message or row.execution.wait_reason
    cut = text if len(text) <= MESSAGE_MAX else f"{text[:MESSAGE_MAX]}…"
    return draw.visible(cut)


def _ran(row: Listed) -> str:
    execution = row.execution
    # what waits for another attempt keeps the start of the one before
    if execution.started_at is None or execution.status in BACKLOG:
        return ""
    ended_at = execution.ended_at or row.now
    return words.span((ended_at - execution.started_at).total_seconds())


def _waited(row: Listed) -> str:
    execution = row.execution
    until = execution.started_at or execution.ended_at or row.now
    return words.span((until - execution.created_at).total_seconds())


def _accepted(row: Listed) -> Any:
    local = timezone.localtime(row.execution.created_at)
    return format_html(
        '<time datetime="{}">{}</time>', local.isoformat(), f"{local:%m-%d %H:%M:%S}"
    )


COLUMNS = (
    Column("status", "Status", _status),
    Column("action", "Action", lambda row: row.execution.action_ref),
    Column("message", "Message", _message),
    Column("worker", "Worker", lambda row: row.execution.worker_name or ""),
    Column("attempt", "Attempt", lambda row: row.execution.attempt),
    Column("waited", "Waited", _waited, is_default=False),
    Column("ran", "Ran", _ran),
    Column("accepted", "Accepted", _accepted),
    Column("reason", "Reason", lambda row: row.execution.reason, is_default=False),
    Column("queue", "Queue", lambda row: row.execution.queue or "default", is_default=False),
    Column("by", "By", lambda row: draw.visible(row.execution.requested_by), is_default=False),
    Column(
        "correlation",
        "Correlation",
        lambda row: draw.visible(row.execution.correlation_id or ""),
        is_default=False,
    ),
)
"""In the order in which they stand. The id, which leads to its page, is always the last."""


def chosen(names: Sequence[str]) -> list[Column]:
    """The columns of these names; without one that is known, the usual ones."""
    wanted = [each for each in COLUMNS if each.name in names]
    return wanted or [each for each in COLUMNS if each.is_default]


def cells(row: Listed, columns: Sequence[Column]) -> list[Cell]:
    """The values of a row."""
    return [
        Cell(column.draw(row), "message" if column.name == "message" else "") for column in columns
    ]
