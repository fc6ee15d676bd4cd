"""Events of what histories say, for rules on `core.execution` and `core.investigation`.

Messages only make it quick. A history is read by its ids, from a watermark. A row with a lower id
may be committed after one with a higher id, so the watermark rises to a row only when all
transactions are over that ran when that row was the newest; what is read twice meets its key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import structlog
from django.db import transaction
from django.db.models import QuerySet

from orchestrator.automation import triggers
from orchestrator.automation.followed import executions, investigations
from orchestrator.automation.followed.history import Followed
from orchestrator.automation.models import Event, Trigger, Watermark
from orchestrator.automation.models.triggers import INVESTIGATION
from orchestrator.automation.recording import record_accepted
from orchestrator.automation.trigger_types import EXECUTION
from orchestrator.core import database, messages, relay
from orchestrator.core.metrics import history
from orchestrator.core.models import ExecutionEvent
from orchestrator.core.models.prepared import Prepared
from orchestrator.core.news import News
from orchestrator.core.states import TERMINAL

log = structlog.get_logger(__name__)

MOST_AT_ONCE = 5_000
FOLLOWED: Mapping[str, Followed] = {
    EXECUTION: executions.FOLLOWED,
    INVESTIGATION: investigations.FOLLOWED,
}
"""By the type of the triggers that follow it."""


def is_wanted() -> bool:
    """Return True while a rule waits for events of executions."""
    return Watermark.objects.filter(trigger__type__ref=EXECUTION).exists()


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
    marks = Watermark.objects.filter(trigger__type__ref=EXECUTION)
    return _for_each(marks, partial(_note_changed, execution_ids=execution_ids, now=now))


def look(*, now: datetime, actor: str) -> int:
    """Record what no message reported, and what has none; returns how many events are new."""
    return _for_each(Watermark.objects.all(), partial(_catch_up, now=now))


def _for_each(marks: QuerySet[Watermark], read: Callable[[Watermark], int]) -> int:
    """Read for each trigger, even if that fails for some; returns the sum."""
    marks = marks.select_related("trigger__type")
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
    model: Any = triggers.HISTORIES[mark.trigger.type.ref]
    newest = triggers.newest_of(model)
    with transaction.atomic():
        rows = Watermark.objects.select_for_update(skip_locked=True, of=("self",))
        present = rows.select_related("trigger__type").filter(pk=mark.pk).first()
        if present is None:
            return 0
        # asked before reading: what is committed in between may not be read
        is_settled = history.is_settled(present.seen_xid)
        after = model.objects.filter(pk__gt=present.read_id)
        batch = _read(after, present.trigger)
        recorded = _record(present.trigger, batch, now)
        read_up_to = batch[-1].pk if len(batch) == MOST_AT_ONCE else newest
        if is_settled:
            present.read_id = max(present.read_id, min(present.seen_id, read_up_to))
            present.seen_id, present.seen_xid = newest, history.own_number()
            present.save(update_fields=["read_id", "seen_id", "seen_xid"])
    return recorded


def _read(rows: QuerySet[Any, Any], trigger: Trigger) -> list[Any]:
    """The first of these rows that the trigger reports, whatever their names."""
    wanted = FOLLOWED[trigger.type.ref].wanted(trigger, rows)
    return list(wanted.order_by("pk")[:MOST_AT_ONCE])


def _record(trigger: Trigger, rows: Sequence[Any], now: datetime) -> int:
    """Record these, except those that are recorded."""
    followed = FOLLOWED[trigger.type.ref]
    by_key = {followed.key(row): row for row in rows if followed.is_named(trigger, row)}
    recorded_before = Event.objects.filter(trigger=trigger, dedup_key__in=by_key)
    known = set(recorded_before.values_list("dedup_key", flat=True))
    fresh = [row for key, row in by_key.items() if key not in known]
    news = followed.events(trigger, fresh)
    recorded, refusals = record_accepted(news, now=now, by_muster=True)
    for each in refusals:
        key, why = news[each.index].key, f"{each.pointer} {each.message}"
        log.warning("event of a history refused", trigger_id=trigger.pk, key=key, error=why)
    return sum(each.is_new for each in recorded)
