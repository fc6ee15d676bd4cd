"""Reading the history of executions once: in ranges of ids, behind a mark.

It is done as in `metrics.history`. What is made of a range is committed together with the mark, so
each event counts once, whatever dies. A range is taken when no transaction is open that may still
commit an id of it, so none is missed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

from django.db import transaction
from django.db.models import Max

from orchestrator.core.metrics import history
from orchestrator.core.models import ExecutionEvent
from orchestrator.rollups.models import Mark

MOST_SECONDS = 5.0
"""Of one run; the next one goes on."""

Take = Callable[[int, int], object]
"""Takes events above the first id, up to the second; called in the transaction of the mark."""


def follow(name: str, take: Take, *, at_once: int, now: datetime) -> int:
    """Read what was written since the mark of this name; returns how many ids that were.

    Another process that reads at the moment is left alone.
    """
    until = time.monotonic() + MOST_SECONDS
    total = 0
    while True:
        read, has_more = _read_some(name, take, at_once, now)
        total += read
        if not has_more or time.monotonic() > until:
            return total


def _read_some(name: str, take: Take, at_once: int, now: datetime) -> tuple[int, bool]:
    """Read up to `at_once` ids; returns how many, and whether there are more.

    1. Take the newest id, and only then lock the mark, which gives this transaction its number.
    2. Note both, unless what was noted before is not read yet.
    3. If all transactions with smaller numbers are over, read, and move the mark.
    """
    last = ExecutionEvent.objects.aggregate(last=Max("pk"))["last"] or 0
    # durable: in a transaction that has its number already, others could have taken later ones
    with transaction.atomic(durable=True):
        mark = Mark.objects.select_for_update(skip_locked=True).filter(name=name).first()
        if mark is None:
            _begin(name, last)
            return 0, False
        if mark.is_reached:
            mark.seen_to, mark.seen_at = max(last, mark.seen_to), now
            mark.seen_before = history.own_number()
        read = 0
        if history.is_settled(mark.seen_before):
            read = _advance(mark, take, min(mark.seen_to, mark.read_to + at_once))
        mark.save()
        return read, read > 0 and not mark.is_reached


def _begin(name: str, last: int) -> None:
    """Make the mark that somebody deleted, unless another process holds it at the moment."""
    if not Mark.objects.filter(name=name).exists():
        Mark.objects.create(name=name, read_to=last, seen_to=last)


def _advance(mark: Mark, take: Take, last: int) -> int:
    read = last - mark.read_to
    if read:
        take(mark.read_to, last)
    mark.read_to = last
    if mark.is_reached:
        mark.read_until = mark.seen_at
    return read
