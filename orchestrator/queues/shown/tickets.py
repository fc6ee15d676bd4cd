"""Tickets: the task messages of a gate, as JSON and as facts."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from pydantic import Field

from orchestrator.core.models import Execution
from orchestrator.core.shown.documents import Shown
from orchestrator.core.shown.values import At, Fact, said
from orchestrator.queues.gates.problems import Problem, described
from orchestrator.queues.gates.replies import why_refused
from orchestrator.queues.models import Gate, Ticket


class TicketOut(Shown):
    """A task message that was taken in, without its data."""

    id: int
    task_id: str
    classifier: str
    state: str = Field(
        description="`open`, `due` (its answer is owed), `told`, or `moved` to another queue."
    )
    execution_id: UUID | None = Field(description="null for a refused message.")
    refused: str | None = Field(description="Why it was refused.")
    tries: int = Field(description="Starts that were lost before it came.")
    continues: int | None = Field(description="The ticket of the task before it was moved.")
    holder: str = Field(description="The executor that took it in.")
    job_status: str
    created_at: datetime
    told_at: datetime | None
    told_to: str
    tell_tries: int = Field(description="Tries to answer that failed.")
    next_tell_at: datetime | None
    last_error: str


def of_gate(gate: Gate, *, untold: bool = False) -> object:
    """The tickets of a gate, the newest first; only those that wait for an answer if asked for."""
    rows = Ticket.objects.filter(gate=gate).select_related("execution")
    return (rows.untold() if untold else rows).order_by("-pk")


def state_of(ticket: Ticket) -> str:
    """The state of a ticket, in a word."""
    if ticket.told_at is not None:
        return "moved" if ticket.moved_at and ticket.refusal is None else "told"
    is_over = ticket.execution is None or ticket.execution.ended_at is not None
    return "due" if is_over else "open"


def all_of(tickets: Iterable[Ticket]) -> list[TicketOut]:
    """Convert tickets, each with its execution."""
    return [
        TicketOut(
            id=ticket.pk,
            task_id=ticket.task_id,
            classifier=str(ticket.envelope.get("taskClassifier") or ""),
            state=state_of(ticket),
            execution_id=ticket.execution_id,
            refused=refused(ticket),
            continues=ticket.continues_id,
            **{name: getattr(ticket, name) for name in COPIED},
        )
        for ticket in tickets
    ]


COPIED = (
    "tries", "holder", "job_status", "created_at", "told_at", "told_to", "tell_tries",
    "next_tell_at", "last_error",
)  # fmt: skip


def refused(ticket: Ticket) -> str | None:
    """The reason why it was refused, in a line; None if it was not."""
    if ticket.refusal is None:
        return None
    problems = [Problem(each["pointer"], each["text"]) for each in ticket.refusal["problems"]]
    return f"{why_refused(ticket.refusal)}: {described(problems)}"


def of_execution(execution: Execution) -> list[Fact]:
    """Facts about the task message of an execution, for its page."""
    if execution.queue is None:  # a gate gives its work to its queue
        return []
    ticket = Ticket.objects.filter(execution=execution).select_related("execution").first()
    if ticket is None:
        return []
    return said(
        [
            ("Task message", f"{ticket.task_id} ({state_of(ticket)})"),
            ("Came in by", ticket.gate.input_queue),
            ("Lost before", ticket.tries or None),
            ("Answered", At(ticket.told_at) if ticket.told_at else None),
            ("Answered to", ticket.told_to),
            ("Why not answered", ticket.last_error),
        ]
    )
