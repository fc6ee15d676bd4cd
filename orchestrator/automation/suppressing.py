"""Suppression: a rule that answered something does not answer the same again for a while."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, Q

from orchestrator.automation.models import Suppression
from orchestrator.core.models.maintenance import PROCESSES_DIFFER_BY
from orchestrator.core.schemas import canonical

Same = tuple[int, str]
"""A rule's id, and the hash of what counts as the same."""


def same(rule_id: int, value: Any) -> Same:
    """The identity of equal answers of a rule."""
    return rule_id, hashlib.sha256(str(canonical.key(value)).encode()).hexdigest()


def locked(wanted: Collection[Same]) -> dict[Same, Suppression]:
    """Lock the rows of these, made if need be, in one order: two batches must not wait for each
    other. Call it inside a transaction."""
    ordered = sorted(set(wanted))
    if not ordered:
        return {}
    Suppression.objects.bulk_create(
        [Suppression(rule_id=rule_id, key_hash=key_hash) for rule_id, key_hash in ordered],
        ignore_conflicts=True,
    )
    condition = Q()
    for rule_id, key_hash in ordered:
        condition |= Q(rule_id=rule_id, key_hash=key_hash)
    rows = Suppression.objects.filter(condition).order_by("rule_id", "key_hash")
    rows = rows.select_for_update(of=("self",), no_key=True)
    return {(row.rule_id, row.key_hash): row for row in rows}


def is_suppressed(row: Suppression, at: datetime, *, seconds: float, now: datetime) -> bool:
    """Return True if the rule answered the same so shortly before.

    An answer of a time to come was given by a clock that was set back since, and suppresses
    nothing. Twice the seconds may be ahead, as `now` is that of a batch that has waited for the
    row.
    """
    latest = now + 2 * timedelta(seconds=seconds) + PROCESSES_DIFFER_BY
    return row.until is not None and at < row.until <= latest


def extend(row: Suppression, until: datetime) -> None:
    """Suppress the same until then."""
    row.until = until
    Suppression.objects.filter(pk=row.pk).update(until=until)


def count(rows: Collection[Suppression]) -> None:
    """Note that these suppressed an answer, each as often as it is named."""
    for pk, hits in Counter(row.pk for row in rows).items():
        Suppression.objects.filter(pk=pk).update(hits=F("hits") + hits)
