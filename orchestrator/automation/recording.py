"""Accept events. All validation happens here, before any row is written."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, partial
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction

from orchestrator.automation import messages
from orchestrator.automation.models import Event, Rule, Trigger
from orchestrator.automation.models.events import DEEPEST, TOO_DEEP
from orchestrator.automation.subjects import subjects_of
from orchestrator.automation.trigger_types import BUILT_IN
from orchestrator.core import investigations, json_values, news, packs, relay
from orchestrator.core.errors import Conflict, Refusal, Refused, Unavailable
from orchestrator.core.models import DLQEntry
from orchestrator.core.statements import Statement, column_parameters, column_values

LONGEST_TEXTS = {"key": 200, "correlation_id": 100}
COUNTED_EVERY_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class NewEvent:
    """An event as it is reported."""

    trigger: Trigger
    """Loaded with its type."""
    payload: Mapping[str, Any] = field(default_factory=dict)
    key: str | None = None
    """Reports of the same trigger with the same key are the same event."""
    occurred_at: datetime | None = None
    correlation_id: str | None = None
    source: str
    sent_by: str = ""
    cause_execution_id: UUID | None = None
    depth: int = 0
    problem: str = ""
    """The reason why no rule is to be asked about it; empty if there is none."""
    only_rule: Rule | None = None
    """The only rule to ask, of a replay."""


@dataclass(frozen=True)
class Recorded:
    """The row of an event, and whether this report made it."""

    event_id: UUID
    is_new: bool


class EventsRefused(Refused):
    """The events were refused and left no row."""


class EventKeyFreed(Conflict):
    """The event that had this key was so old that it has just been removed: send again."""

    kind = "event-key-freed"
    retry_after_seconds = 1


class TooManyEvents(Unavailable):
    """Too many events wait for the rules to be asked."""

    kind = "too-many-events"
    title = "Too many events wait"
    retry_after_seconds = 5


def record_many(
    news: Sequence[NewEvent], *, now: datetime, by_muster: bool = False
) -> list[Recorded]:
    """Record events: all of them, or none; returns their rows in the order of `news`.

    A repeated key gives the row of its first report, whatever the payload. `by_muster`: Muster
    itself reports, so that they may be of the types that it brings. Raises EventsRefused with all
    problems, and EventKeyFreed. The executors are told after the commit and in the background:
    accepting needs no broker.
    """
    refusals = [
        Refusal(index, pointer, message)
        for index, new in enumerate(news)
        for pointer, message in _problems(new, by_muster=by_muster)
    ]
    if refusals:
        raise EventsRefused(refusals)
    rows = [_row(new, now) for new in news]
    is_one_statement = len(rows) == 1 and not rows[0].problem
    with nullcontext() if is_one_statement else transaction.atomic():
        recorded = _written(rows)
        new_ids = {each.event_id for each in recorded if each.is_new}
        fresh = [row for row in rows if row.pk in new_ids]
        _investigate([row for row in fresh if row.problem == TOO_DEEP], now)
        waiting = [row.pk for row in fresh if row.evaluated_at is None]
        transaction.on_commit(partial(relay.send_soon, messages.recorded(waiting)))
        _tell(fresh, now)
    return recorded


def record_accepted(
    news: Sequence[NewEvent], *, now: datetime, by_muster: bool = False
) -> tuple[list[Recorded], list[Refusal]]:
    """Record those that are not refused; their rows, and why the others were. Raises
    EventKeyFreed."""
    if not news:
        return [], []
    try:
        return record_many(news, now=now, by_muster=by_muster), []
    except EventsRefused as refused:
        wrong = {each.index for each in refused.refusals}
        rest = [new for index, new in enumerate(news) if index not in wrong]
        return record_many(rest, now=now, by_muster=by_muster) if rest else [], refused.refusals


def _tell(fresh: Sequence[Event], now: datetime) -> None:
    news.tell(Event, (row.pk for row in fresh), state="recorded", now=now)


class _Backlog:
    """The backlog of events when somebody last counted it, in this process."""

    def __init__(self) -> None:
        self.is_full, self.counted_at = False, float("-inf")

    def look(self) -> bool:
        if time.monotonic() - self.counted_at > COUNTED_EVERY_SECONDS:
            limit = settings.MUSTER.events_backlog_limit
            beyond = Event.objects.unevaluated().order_by("received_at", "id")[limit : limit + 1]
            self.is_full, self.counted_at = beyond.exists(), time.monotonic()
        return self.is_full


_backlog = _Backlog()


def require_room() -> None:
    """Raise TooManyEvents if executors cannot keep up: for events from outside."""
    if _backlog.look():
        raise TooManyEvents


def _row(new: NewEvent, now: datetime) -> Event:
    problem = TOO_DEEP if new.depth >= DEEPEST else new.problem[:200]
    return Event(
        trigger=new.trigger,
        type_ref=new.trigger.type.ref,
        dedup_key=new.key,
        payload=dict(new.payload),
        occurred_at=new.occurred_at,
        received_at=now,
        evaluated_at=now if problem else None,
        matched=0 if problem else None,
        problem=problem,
        source=new.source,
        sent_by=new.sent_by[:150],
        correlation_id=new.correlation_id,
        depth=min(new.depth, DEEPEST),
        cause_execution_id=new.cause_execution_id,
        only_rule=new.only_rule,
    )


def _written(rows: Sequence[Event]) -> list[Recorded]:
    """Insert the rows; a key that is taken is skipped and then looked up: no window between the
    two."""
    if len(rows) == 1 and connection.vendor == "postgresql":
        if _insertion().execute(column_values(rows[0])):
            return [Recorded(rows[0].pk, is_new=True)]
    else:
        has_keys = any(row.dedup_key for row in rows)
        Event.objects.bulk_create(sorted(rows, key=_order), ignore_conflicts=has_keys)
    return _with_taken_keys(rows)


@cache
def _insertion() -> Statement:
    """Inserts one event, as most come alone, and returns its id unless its key is taken."""
    table, columns = Event._meta.db_table, column_parameters(Event)
    return Statement(
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(columns.values())})"  # noqa: S608
        " ON CONFLICT DO NOTHING RETURNING id"
    )


def _order(row: Event) -> tuple[int, str]:
    """The order of insertion: two batches that want the same keys must not wait for each other."""
    return row.trigger_id, row.dedup_key or ""


def _with_taken_keys(rows: Sequence[Event]) -> list[Recorded]:
    """The rows, with each whose key was used before replaced by the holder of that key."""
    keys = {row.dedup_key for row in rows if row.dedup_key is not None}
    triggers = {row.trigger_id for row in rows}
    holders: dict[tuple[int, str | None], UUID] = {}
    if keys:
        taken = Event.objects.filter(trigger__in=triggers, dedup_key__in=keys)
        for pk, trigger_id, key in taken.values_list("pk", "trigger_id", "dedup_key"):
            holders[trigger_id, key] = pk
    recorded = []
    for row in rows:
        holder = row.pk if row.dedup_key is None else holders.get((row.trigger_id, row.dedup_key))
        if holder is None:  # and so the row was not written
            raise EventKeyFreed
        recorded.append(Recorded(holder, is_new=holder == row.pk))
    return recorded


def _investigate(rows: Sequence[Event], now: datetime) -> None:
    """Have somebody look at rules that answer what they cause themselves."""
    investigations.open_for(
        subjects_of(rows),
        reason=DLQEntry.Reason.DEPENDENCY_CYCLE_DETECTED,
        detail=f"{DEEPEST - 1} rules in a row answered what the one before had caused",
        now=now,
        actor="automation",
    )


def _problems(new: NewEvent, *, by_muster: bool) -> Iterable[tuple[str, str]]:
    kind = new.trigger.type
    if kind.retired_at is not None:
        yield "/trigger", f"the trigger type {kind.ref} is no longer in its pack"
    if kind.ref in BUILT_IN and not by_muster:
        yield "/trigger", f"only Muster itself reports events of the type {kind.ref}"
    yield from _payload_problems(new)
    for name, longest in LONGEST_TEXTS.items():
        text = getattr(new, name)
        if text is not None and (problem := json_values.text_problem(text, longest)):
            yield f"/{name}", problem


def _payload_problems(new: NewEvent) -> Iterable[tuple[str, str]]:
    payload = dict(new.payload)
    faults = list(json_values.faults(payload))
    for place, what in faults:
        yield f"/payload{place}", what
    if faults:
        return
    limit = settings.MUSTER.event_limit_bytes
    size = len(json.dumps(payload, ensure_ascii=False).encode())
    if size > limit:
        yield "/payload", f"expected at most {limit:,} bytes as JSON, found {size:,}"
        return
    for problem in packs.validate_value(new.trigger.type.payload_schema, payload):
        yield f"/payload{problem.pointer}", problem.message
