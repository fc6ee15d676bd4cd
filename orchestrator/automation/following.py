"""Events of executions: what their history says, for rules on `core.execution`.

Messages only make it quick. The history is read by its ids, from a watermark. A row with a lower id
may be committed after one with a higher id, so the watermark rises to a row only when all
transactions are over that ran when that row was the newest; what is read twice meets its key.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from functools import partial
from uuid import UUID

import structlog
from django.db import transaction
from django.db.models import Max, QuerySet

from orchestrator.automation import triggers
from orchestrator.automation.models import Enforcement, Event, Trigger, Watermark
from orchestrator.automation.recording import NewEvent, record_accepted
from orchestrator.core import database, messages, relay
from orchestrator.core.metrics import history
from orchestrator.core.models import ExecutionEvent
from orchestrator.core.models.prepared import Prepared
from orchestrator.core.news import News
from orchestrator.core.states import TERMINAL

log = structlog.get_logger(__name__)

MOST_AT_ONCE = 5_000
SOURCE = "execution"


def is_wanted() -> bool:
    """Return True while a rule waits for events of executions."""
    return Watermark.objects.exists()


_beyond_ends = Prepared(lambda: Watermark.objects.filter(beyond_ends=True).values_list("pk")[:1])


def is_wanted_beyond_ends() -> bool:
    """Return True while a rule waits for other statuses than terminal ones."""
    return bool(_beyond_ends())


def tell(news: News) -> None:
    """Tell the executors of statuses that are not an end, in the background. Ends have a message
    of their own, which is always sent."""
    if news.feed.entity == "execution" and news.is_in_history and news.state not in TERMINAL:
        relay.send_soon(messages.status_changed(list(news.ids)))


def note_changed(execution_ids: Collection[UUID], *, now: datetime, actor: str) -> int:
    """Record what the history of these executions says; returns how many events are new."""
    return _for_each_mark(partial(_note_changed, execution_ids=execution_ids, now=now))


def look(*, now: datetime, actor: str) -> int:
    """Record what no message reported; returns how many events are new."""
    return _for_each_mark(partial(_catch_up, now=now))


def _for_each_mark(read: Callable[[Watermark], int]) -> int:
    """Read for each trigger, even if that fails for some; returns the sum."""
    marks = Watermark.objects.select_related("trigger__type")
    parts = {str(mark.trigger): partial(read, mark) for mark in marks}
    return sum(database.carry_out_each(parts).values())


def _note_changed(mark: Watermark, *, execution_ids: Collection[UUID], now: datetime) -> int:
    rows = ExecutionEvent.objects.filter(execution_id__in=execution_ids, pk__gt=mark.read_id)
    return _record(mark.trigger, _read(rows, mark.trigger), now)


def _catch_up(mark: Watermark, *, now: datetime) -> int:
    """Read the history from the watermark on:

    1. Take the newest id, and only then lock the watermark, which gives this transaction its
       number: whoever may still write a lower id has a lower number.
    2. Record what is new.
    3. If all were over that could write below the id of an earlier look, the watermark rises to it.
    """
    newest = ExecutionEvent.objects.aggregate(newest=Max("pk"))["newest"] or 0
    with transaction.atomic():
        rows = Watermark.objects.select_for_update(skip_locked=True, of=("self",))
        present = rows.select_related("trigger__type").filter(pk=mark.pk).first()
        if present is None:
            return 0
        # asked before reading: what is committed in between may not be read
        is_settled = history.is_settled(present.seen_xid)
        after = ExecutionEvent.objects.filter(pk__gt=present.read_id)
        batch = _read(after, present.trigger)
        recorded = _record(present.trigger, batch, now)
        read_up_to = batch[-1].pk if len(batch) == MOST_AT_ONCE else newest
        if is_settled:
            present.read_id = max(present.read_id, min(present.seen_id, read_up_to))
            present.seen_id, present.seen_xid = newest, history.own_number()
            present.save(update_fields=["read_id", "seen_id", "seen_xid"])
    return recorded


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
    recorded, refusals = record_accepted(news, now=now, by_muster=True)
    for each in refusals:
        key, why = news[each.index].key, f"{each.pointer} {each.message}"
        log.warning("event of an execution refused", trigger_id=trigger.pk, key=key, error=why)
    return sum(each.is_new for each in recorded)


def _is_named(row: ExecutionEvent, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(row.execution.action_ref, pattern) for pattern in patterns)


def _key(row: ExecutionEvent) -> str:
    return f"{row.execution_id}:{row.pk}"


def _depths(execution_ids: Collection[UUID]) -> dict[UUID, int]:
    """The number of rules that have led to each of these executions; 0 for those that are left
    out."""
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
