"""Events of executions: what their history says, for rules on `core.execution`.

Messages only make it quick. The history is read by its ids, from a watermark. A row with a lower id
may be committed after one with a higher id, so the watermark rises to a row only when all
transactions are over that ran when that row was the newest; what is read twice meets its key.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Max, QuerySet

from orchestrator.automation import triggers
from orchestrator.automation.models import Enforcement, Event, Trigger, Watermark
from orchestrator.automation.recording import NewEvent, record_many
from orchestrator.core.models import ExecutionEvent
from orchestrator.core.models.prepared import Prepared

MOST_AT_ONCE = 5_000
SOURCE = "execution"


def is_wanted() -> bool:
    """Return True while a rule waits for events of executions."""
    return Watermark.objects.exists()


_beyond_ends = Prepared(lambda: Watermark.objects.filter(beyond_ends=True).values_list("pk")[:1])


def is_wanted_beyond_ends() -> bool:
    """Return True while a rule waits for other statuses than terminal ones."""
    return bool(_beyond_ends())


def note_changed(execution_ids: Collection[UUID], *, now: datetime, actor: str) -> int:
    """Record what the history of these executions says; returns how many events are new."""
    total = 0
    for mark in _marks():
        rows = ExecutionEvent.objects.filter(execution_id__in=execution_ids, pk__gt=mark.read_id)
        total += _record(mark.trigger, _read(rows, mark.trigger), now)
    return total


def look(*, now: datetime, actor: str) -> int:
    """Record what no message reported; returns how many events are new."""
    return sum(_catch_up(mark.pk, now) for mark in _marks())


def _marks() -> list[Watermark]:
    return list(Watermark.objects.select_related("trigger__type"))


def _catch_up(mark_id: int, now: datetime) -> int:
    """Read the history from the watermark on:

    1. Take the newest id, and only then lock the watermark, which gives this transaction its
       number: whoever may still write a lower id has a lower number.
    2. Record what is new.
    3. If all are over that could write below the id of an earlier look, the watermark rises to it.
    """
    newest = ExecutionEvent.objects.aggregate(newest=Max("pk"))["newest"] or 0
    with transaction.atomic():
        rows = Watermark.objects.select_for_update(skip_locked=True, of=("self",))
        mark = rows.select_related("trigger__type").filter(pk=mark_id).first()
        if mark is None:
            return 0
        own, oldest = _transactions()
        after = ExecutionEvent.objects.filter(pk__gt=mark.read_id)
        batch = _read(after, mark.trigger)
        recorded = _record(mark.trigger, batch, now)
        read_up_to = batch[-1].pk if len(batch) == MOST_AT_ONCE else newest
        if oldest > mark.seen_xid:
            mark.read_id = max(mark.read_id, min(mark.seen_id, read_up_to))
            mark.seen_id, mark.seen_xid = newest, own
            mark.save(update_fields=["read_id", "seen_id", "seen_xid"])
    return recorded


def _transactions() -> tuple[int, int]:
    """The number of this transaction, and of the oldest one that is not over. SQLite has one
    writer at a time: there is none besides."""
    if connection.vendor != "postgresql":
        return 0, 1
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_current_xact_id()::text::bigint,"
            " pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
        )
        own, oldest = cursor.fetchone()
    return own, oldest


def _read(rows: QuerySet[ExecutionEvent, ExecutionEvent], trigger: Trigger) -> list[ExecutionEvent]:
    """The first of these rows that the trigger reports, whatever their actions."""
    wanted = rows.filter(to_status__in=sorted(triggers.wanted_statuses(trigger)))
    wanted = wanted.select_related("execution").order_by("pk")
    columns = ("execution__action_ref", "execution__correlation_id")
    own = [field.attname for field in ExecutionEvent._meta.concrete_fields]
    return list(wanted.only(*own, *columns)[:MOST_AT_ONCE])


def _record(trigger: Trigger, rows: Sequence[ExecutionEvent], now: datetime) -> int:
    """Record these, except those that are recorded."""
    named = trigger.parameters.get("actions")
    rows = [row for row in rows if named is None or _is_named(row, named)]
    keys = {_key(row) for row in rows}
    known = set(
        Event.objects.filter(trigger=trigger, dedup_key__in=keys).values_list(
            "dedup_key", flat=True
        )
    )
    fresh = [row for row in rows if _key(row) not in known]
    depths = _depths({row.execution_id for row in fresh})
    news = [_event(trigger, row, depths.get(row.execution_id, 0) + 1) for row in fresh]
    return sum(each.is_new for each in record_many(news, now=now, by_muster=True)) if news else 0


def _is_named(row: ExecutionEvent, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(row.execution.action_ref, pattern) for pattern in patterns)


def _key(row: ExecutionEvent) -> str:
    return f"{row.execution_id}:{row.pk}"


def _depths(execution_ids: Collection[UUID]) -> dict[UUID, int]:
    """How many rules have led to these executions; none to those that are left out."""
    causes = Enforcement.objects.filter(execution__in=execution_ids)
    pairs = causes.values_list("execution_id", "event__depth")
    return {id: depth for id, depth in pairs if id is not None}


def _event(trigger: Trigger, row: ExecutionEvent, depth: int) -> NewEvent:
    return NewEvent(
        trigger=trigger,
        payload={
            "execution_id": str(row.execution_id),
            "action_ref": row.execution.action_ref,
            "status": row.to_status,
            "was": row.from_status,
            "event": row.event,
            "reason": row.reason,
            "attempt": row.attempt,
            "at": row.at.isoformat(),
        },
        key=_key(row),
        occurred_at=row.at,
        # what comes of it is of its tree
        correlation_id=row.execution.correlation_id or str(row.execution_id),
        source=SOURCE,
        cause_execution_id=row.execution_id,
        depth=depth,
    )
