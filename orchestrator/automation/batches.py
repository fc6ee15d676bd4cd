"""Many rows, some at a time: none of them keeps the others from being settled."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from uuid import UUID

import structlog
from django.conf import settings

from orchestrator.core.database import is_outage

log = structlog.get_logger(__name__)

Settle = Callable[[Sequence[UUID]], int]
"""Takes ids, and returns how many rows it settled, in one transaction."""
GiveUp = Callable[[UUID, Exception], int]
"""Takes the id of a row that cannot be settled, and the error."""


def settle_all(ids: Collection[UUID], settle: Settle, *, give_up: GiveUp) -> int:
    """Settle these rows in batches; returns how many.

    If a batch fails, each of its rows is settled alone, and those that fail again are given up.
    Raises the database's error if that is away.
    """
    ordered, size = sorted(ids), settings.MUSTER.batch_size
    starts = range(0, len(ordered), size)
    return sum(_settle(ordered[start : start + size], settle, give_up) for start in starts)


def _settle(ids: Sequence[UUID], settle: Settle, give_up: GiveUp) -> int:
    try:
        return settle(ids)
    except Exception as error:
        # whatever it is, it is about one of these rows, and must not come back for ever
        if is_outage(error):
            raise
        if len(ids) == 1:
            log.exception("row given up", id=str(ids[0]))
            return give_up(ids[0], error)
        log.warning("rows not settled together, each alone now", n=len(ids), error=repr(error))
    return sum(_settle([id], settle, give_up) for id in ids)
