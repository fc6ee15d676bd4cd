"""A bulk order: as JSON, as facts, and what was refused of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.db.models import Count
from pydantic import Field

from orchestrator.bulk.models import BulkOrder, Refusal
from orchestrator.bulk.ordering import Foreseen
from orchestrator.bulk.states import KINDS, ORDERS, OrderState
from orchestrator.bulk.verbs import VERBS
from orchestrator.core import words
from orchestrator.core.shown.documents import Shown
from orchestrator.core.shown.values import At, Fact, State, said


class ForeseenOut(Shown):
    """The rows that an order would be about."""

    verb: str
    query: str
    matched: int
    looked_from: datetime | None = Field(
        description="A search that scans and names no time looked back to here; null for all."
    )
    first_ids: list[UUID] = Field(description="At most ten of the rows, the oldest first.")
    up_to: UUID | None = Field(description="The last of the rows; null if none matches.")


class OrderOut(Shown):
    """A bulk order."""

    id: UUID
    verb: str
    noun: str
    query: str = Field(description="The search; empty if rows were named.")
    looked_from: datetime | None
    reason: str
    resolution: str
    ordered_by: str
    state: OrderState
    matched: int = Field(description="Rows that matched when it was ordered.")
    position: int = Field(description="Rows that were looked at.")
    done: int
    refused: int
    rows_per_second: float
    end_reason: str
    ended_by: str
    last_error: str = Field(description="Why the batch at its position is tried again.")
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class RefusalOut(Shown):
    """A row for which the verb was not carried out."""

    subject_id: UUID
    kind: str
    why: str
    at: datetime


COPIED = (
    "id", "verb", "query", "looked_from", "reason", "resolution", "ordered_by", "state", "matched",
    "position", "done", "refused", "end_reason", "ended_by", "last_error", "created_at",
    "started_at", "ended_at",
)  # fmt: skip
FIRST_IDS = 10
REASONS_MAX = 20


def foreseen(found: Foreseen, query: str) -> ForeseenOut:
    """Convert what an order would be about."""
    return ForeseenOut(
        verb=found.verb.name,
        query=query,
        matched=found.matched,
        looked_from=found.looked_from,
        first_ids=found.ids[:FIRST_IDS],
        up_to=found.up_to,
    )


def shown(row: BulkOrder, now: datetime) -> OrderOut:
    """Convert an order."""
    return OrderOut(
        **{name: getattr(row, name) for name in COPIED},
        noun=noun(row),
        rows_per_second=round(row.rate(now), 1),
    )


def refusal(row: Refusal) -> RefusalOut:
    """Convert a refusal."""
    return RefusalOut.model_validate(row)


def noun(row: BulkOrder) -> str:
    """The name for the rows of an order; `rows` for a verb that no longer exists."""
    return VERBS[row.verb].noun.name if row.verb in VERBS else "rows"


def about(row: BulkOrder) -> str:
    """The subject of an order, in words: its search, or the rows that were named."""
    return row.query or f"{row.matched:,} named {noun(row)}"


def situation(row: BulkOrder, now: datetime) -> list[Fact]:
    """The facts of an order: what was ordered, by whom and why, and how it stands."""
    return said(
        [
            ("state", State(row.state, KINDS)),
            ("moved on by", ORDERS.who_moves_it_on[OrderState(row.state)] if row.is_open else None),
            ("verb", f"{row.verb} {row.resolution}".strip()),
            ("about", about(row)),
            ("looked back to", At(row.looked_from) if row.looked_from else None),
            ("ordered by", row.ordered_by),
            ("reason", row.reason),
            ("progress", progress(row)),
            ("rate", f"{row.rate(now):.0f} rows a second" if row.position else None),
            ("tried again because of", row.last_error),
        ]
    )


def times(row: BulkOrder, now: datetime) -> list[Fact]:
    """The times at which it was ordered, began and ended, and who ended it."""
    left = words.span(remaining_seconds(row, now)) if row.is_open and row.position else None
    return said(
        [
            ("ordered", At(row.created_at)),
            ("began", At(row.started_at) if row.started_at else None),
            ("left, about", left),
            ("ended", At(row.ended_at) if row.ended_at else None),
            ("ended by", row.ended_by),
            ("because", row.end_reason),
        ]
    )


def progress(row: BulkOrder) -> str:
    """`1,200 of 5,000 looked at, 20 refused`."""
    return f"{row.position:,} of {row.matched:,} looked at, {row.refused:,} refused"


def remaining_seconds(row: BulkOrder, now: datetime) -> float:
    """The time that the rest takes at the rate so far; 0 if that is unknown."""
    rate = row.rate(now)
    return (row.matched - row.position) / rate if rate else 0.0


def why_refused(row: BulkOrder) -> Sequence[tuple[str, int]]:
    """The codes of its refusals, each with its number, the most frequent first."""
    kinds = row.refusals.order_by().values_list("kind").annotate(number=Count("pk"))
    return list(kinds.order_by("-number", "kind")[:REASONS_MAX])
