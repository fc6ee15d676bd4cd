"""Remove rows that have been over for as long as the settings keep them, and close what nobody has
closed for as long as they leave it to people.

Oldest first, in small transactions, and for a few seconds at a time: the next tick goes on. Nothing
that is open is ever removed, nor what an open row needs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.apps import apps
from django.conf import settings
from django.db import models, transaction
from django.db.models import Exists, OuterRef

from orchestrator.core import database, finality, frame, investigations
from orchestrator.core.frame import Retention
from orchestrator.core.investigations import EntryIsClosed
from orchestrator.core.metrics import counters
from orchestrator.core.models import DLQEntry, Execution, OutputChunk, Worker
from orchestrator.core.models.time_ordered import made_at, uuid7_floor

MOST_SECONDS = 5.0
"""Of one tick. At its default interval that leaves more than nine tenths of the time, and of the
database, to others."""

UUID_VERSION = 7
"""Of the ids of executions: they begin with their time."""

ACTOR = "retention"
"""As it closes entries, they name it so."""

LETTERS_AT_ONCE = 1_000
"""The most that are closed in one tick."""

LEAST_AGE = timedelta(hours=1)
"""Whoever waits for an end has read it by then."""


@dataclass(frozen=True)
class Old:
    """Rows of one kind that may go now."""

    kind: Retention
    before: datetime
    """They were over before this."""

    def rows(self) -> models.QuerySet[Any]:
        rows: models.QuerySet[Any] = self.kind.old(self.before)
        return rows.order_by("pk")

    def remove(self, *, after: Any = None) -> list[Any]:
        """Remove one batch in a transaction, with what belongs to it; returns the ids. Rows that
        another session holds are skipped. `after`: the last id of the batch before."""
        rows = self.rows() if after is None else self.rows().filter(pk__gt=after)
        with transaction.atomic(), finality.pruning():
            if not self.kind.is_history:
                rows = rows.select_for_update(skip_locked=True, of=("self",))
            ids = list(rows.values_list("pk", flat=True)[: self.kind.at_once])
            if not ids:
                return []
            for part in self.kind.parts:
                label, _, field = part.rpartition(".")
                _delete(apps.get_model(label).objects.filter(**{f"{field}__in": ids}))
            _delete(rows.model.objects.filter(pk__in=ids))
            counters.ROWS_PRUNED.add({self.kind.name: len(ids)})
        return ids


def old(*, now: datetime) -> Iterator[Old]:
    """The rows that may go, kind by kind: those that need others before them."""
    return filter(None, (_old(kind, now) for kind in _kinds()))


def prune(*, now: datetime, most_seconds: float = MOST_SECONDS) -> dict[str, int]:
    """Remove what may go; returns how many rows of each kind went.

    Each kind has an equal part of the time that those before it have left, and at least one batch.
    If one fails, the others still have theirs; its error is raised after all had their turn.
    """
    until = time.monotonic() + most_seconds
    kinds = _kinds()
    removed = database.carry_out_each(
        {
            kind.name: partial(_prune, kind, now, until, sharing=len(kinds) - place)
            for place, kind in enumerate(kinds)
        }
    )
    return {name: number for name, number in removed.items() if number}


def _kinds() -> list[Retention]:
    return list(reversed(frame.collect(lambda app: app.retention)))


def _old(kind: Retention, now: datetime) -> Old | None:
    before = _kept_since(kind, now)
    return None if before is None else Old(kind, before)


def _prune(kind: Retention, now: datetime, until: float, *, sharing: int) -> int:
    """Remove rows of one kind, for its part of the time until then, which so many kinds share;
    returns how many."""
    each = _old(kind, now)
    if each is None:
        return 0
    began = time.monotonic()
    until = began + (until - began) / sharing
    total, last = 0, None
    while True:
        ids = each.remove(after=last)
        total += len(ids)
        if len(ids) < kind.at_once or time.monotonic() >= until:
            return total
        last = ids[-1]


def _kept_since(kind: Retention, now: datetime) -> datetime | None:
    """Rows that were over before this go; None if all are kept."""
    days: float = getattr(settings.MUSTER, kind.days)
    limits = [] if math.isinf(days) else [now - timedelta(days=days)]
    most: float = getattr(settings.MUSTER, kind.most) if kind.most else math.inf
    if not math.isinf(most):
        limits += _newest_too_many(kind, int(most))
    return min(max(limits), now - LEAST_AGE) if limits else None


def _newest_too_many(kind: Retention, most: int) -> list[datetime]:
    """The time since when the newest row beyond this number has been over."""
    ended: Any = apps.get_model(kind.model).objects.filter(**{f"{kind.ended}__isnull": False})
    return list(ended.order_by("-pk").values_list(kind.ended, flat=True)[most : most + 1])


def _delete(rows: models.QuerySet[Any]) -> None:
    """Delete without reading the rows first, as Django would for its signals."""
    rows._raw_delete(rows.db)


def old_executions(before: datetime) -> models.QuerySet[Execution]:
    """Executions that ended before this, that no app needs, and nobody investigates."""
    old = Execution.objects.filter(pk__lt=uuid7_floor(before), ended_at__lt=before)
    old = old.exclude(has_pending_entry())
    for is_needed in frame.collect(lambda app: app.kept_executions):
        old = old.exclude(is_needed())  # one by one: `exclude(a, b)` keeps what meets both
    return old


def may_have_taken(id: UUID, *, now: datetime) -> str:
    """A sentence about an execution that is not there: whether it may have been removed."""
    try:
        made = made_at(id)
    except ValueError:  # beyond the year 9999
        made = None
    if id.version != UUID_VERSION or made is None or made > now + LEAST_AGE:
        return "No execution was ever given an id of this form"
    since = f"Its id is of {made:%Y-%m-%d %H:%M:%S} UTC"
    if made > now - LEAST_AGE:
        return f"{since}: nothing is removed so soon, so there never was one"
    days, most = settings.MUSTER.keep_executions_days, settings.MUSTER.keep_executions
    limits = [] if math.isinf(days) else [f"for {days:g} days after their end"]
    limits += [] if math.isinf(most) else [f"up to a number of {most:,.0f}"]
    if not limits:
        return f"{since}: executions are kept for ever, so there was none, or somebody removed it"
    if math.isinf(most) and made > now - timedelta(days=days):
        return f"{since}: executions are kept {limits[0]}, so retention has not taken it"
    return f"{since}: executions are kept {' and '.join(limits)}, so it may have been removed"


def old_entries(before: datetime) -> models.QuerySet[DLQEntry]:
    """Entries that were closed before this."""
    return DLQEntry.objects.filter(resolved_at__lt=before)


def old_workers(before: datetime) -> models.QuerySet[Worker]:
    """Workers that were retired before this, and before each execution that is still there."""
    oldest = Execution.objects.order_by("pk").values_list("created_at", flat=True).first()
    if oldest is not None:
        before = min(before, oldest - LEAST_AGE)
    return Worker.objects.filter(retired_at__lt=before)


def old_output(before: datetime) -> models.QuerySet[OutputChunk]:
    """Output that was written before this, of what does not run any more."""
    is_open = Exists(Execution.objects.open().filter(pk=OuterRef("execution_id")))
    return OutputChunk.objects.filter(written_at__lt=before).exclude(is_open)


def has_pending_entry() -> Exists:
    """The condition for rows, with a UUID as their id, that somebody has to look at."""
    return Exists(DLQEntry.objects.pending().filter(subject_id=OuterRef("pk")))


# --- letters -------------------------------------------------------------------------------------


def close_letters(*, now: datetime, most_seconds: float = MOST_SECONDS) -> int:
    """Close investigations of letters that have been pending for as long as the settings leave them
    to people, each by itself; returns how many."""
    days: float = settings.MUSTER.keep_pending_letters_days
    if math.isinf(days):
        return 0
    before = now - max(timedelta(days=days), LEAST_AGE)
    old = DLQEntry.objects.pending().letters().unheard_of(before).order_by("dlq_timestamp")
    until, closed = time.monotonic() + most_seconds, 0
    for id in list(old.values_list("dlq_entry_uuid", flat=True)[:LETTERS_AT_ONCE]):
        if time.monotonic() >= until:
            break
        with suppress(EntryIsClosed):  # somebody got there first
            investigations.close(
                id,
                resolution=DLQEntry.Resolution.PERMANENTLY_FAILED,
                note=f"nobody closed it in {days:g} days (MUSTER_KEEP_PENDING_LETTERS_DAYS)",
                now=now,
                actor=ACTOR,
            )
            closed += 1
    return closed
