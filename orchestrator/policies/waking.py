"""Making due what waits, when a place may be free. Whether it may start is decided by `admitting`.

Only the first ones of a line are made due, as many as there are places: the others are not read
again each time.

Nothing but `Execution.next_retry_at` says when one is looked at again: a copy of it here would go
its own way, as everybody who moves an execution writes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Exists, OuterRef, QuerySet

from orchestrator.core.models import Execution
from orchestrator.core.models.execution_sets import BY_LIMIT
from orchestrator.policies import figures
from orchestrator.policies.models import Policy, PolicyBucket, PolicyWait, busy_lines, free_ended

AT_ONCE = 1_000
"""The most executions that one transaction makes due."""

MOST_AT_ONCE = 5 * AT_ONCE
"""The most that one call makes due: the next tick of maintenance goes on."""

NOT_AHEAD = timedelta(0)

LOOKS_AHEAD = timedelta(seconds=10)
"""Longer than from one tick of maintenance to the next."""


def ended(execution_ids: Collection[UUID], *, now: datetime) -> int:
    """Make due what these, which ended, have kept waiting; returns how many. Safe to run twice, and
    any call of it may be missing."""
    if busy_lines.are_statements():
        return busy_lines.pass_on(execution_ids, now=now, most=MOST_AT_ONCE)
    freed = free_ended(execution_ids)
    return first_of(PolicyBucket.objects.filter(pk__in=freed), now=now) if freed else 0


def first_of_held(buckets: Collection[PolicyBucket], *, now: datetime) -> None:
    """Make due the first ones that wait for these, which the caller's transaction holds."""
    others = {bucket.pk for bucket in buckets}
    if busy_lines.are_statements():
        at_once = {each.pk for each in buckets if each.policy.kind == Policy.Kind.CONCURRENCY}
        busy_lines.make_first_due(at_once, now=now, most=MOST_AT_ONCE)
        others -= at_once
    if others:
        first_of(PolicyBucket.objects.filter(pk__in=others), now=now)


def first_of(
    buckets: QuerySet[PolicyBucket], *, now: datetime, ahead: timedelta = NOT_AHEAD
) -> int:
    """Make due the first ones that wait for these buckets, as many as have a place; returns how
    many were not due yet.

    `ahead`: of a rate, also those whose places come so soon, if they are to be looked at later than
    their places come. Their times are from before a change, or somebody before them has gone.
    """
    with_waits = buckets.filter(Exists(PolicyWait.objects.filter(bucket=OuterRef("pk"))))
    places = figures.places_of(with_waits.select_related("policy"), now=now)
    wanted = {id: each.free + each.soon(ahead) for id, each in places.items()}
    ids: list[UUID] = []
    before: Counter[int] = Counter()
    for each in PolicyWait.objects.next_in_line(wanted, now):
        theirs, number = places[each.bucket_id], before[each.bucket_id]
        before[each.bucket_id] += 1
        if each.next_retry_at > (now if number < theirs.free else theirs.again_at(number)):
            ids.append(each.execution_id)
    return make_due(ids[:MOST_AT_ONCE], now=now)


def make_due(execution_ids: Sequence[UUID], *, now: datetime) -> int:
    """Have these, which wait, looked at now; returns how many. One whose row another session holds
    is left out: it is being looked at."""
    number = 0
    for start in range(0, len(execution_ids), AT_ONCE):
        ids = execution_ids[start : start + AT_ONCE]
        waiting = Execution.objects.filter(pk__in=ids, ended_at__isnull=True)
        waiting = waiting.filter(next_retry_at__gt=now, wait_reason__startswith=BY_LIMIT)
        number += len(waiting.update_unheld(next_retry_at=now))
    return number
