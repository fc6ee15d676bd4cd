"""Counting what runs without having been counted.

It was started before its policy was made, or by a process that did not know of it yet. What runs is
never stopped for it; but nothing more starts while there is more than the limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet

from orchestrator.core.models import Execution
from orchestrator.core.models.execution_sets import DISPATCHED
from orchestrator.policies import admitting, book
from orchestrator.policies.models import Policy, PolicyBucket, PolicySlot

AT_ONCE = 1_000
"""The most that are read at once."""


def adopt(policies: QuerySet[Policy], *, now: datetime) -> int:
    """Count what runs of these policies of concurrency; returns how many were not counted. Safe to
    run twice."""
    return sum(_adopt(policy, now=now) for policy in policies.filter(kind=Policy.Kind.CONCURRENCY))


def _adopt(policy: Policy, *, now: datetime) -> int:
    # who did not know of a change may have counted with the key before it
    theirs = PolicySlot.objects.filter(
        bucket__policy=policy, bucket__keyed_by=policy.keyed_by, execution=OuterRef("pk")
    )
    held = Execution.objects.open().filter(status__in=DISPATCHED)
    uncounted = held.filter(book.of([policy]).condition, ~Exists(theirs)).without_contents()
    total, rest = 0, uncounted.order_by("pk")
    while executions := rest[:AT_ONCE].with_actions():
        _count(policy, executions, now)
        total += len(executions)
        rest = uncounted.filter(pk__gt=executions[-1].pk).order_by("pk")
    return total


@transaction.atomic
def _count(policy: Policy, executions: Sequence[Execution], now: datetime) -> None:
    by_id = {execution.pk: execution for execution in executions}
    claims = admitting.claims_of(by_id, {id: [policy] for id in by_id})
    admitting.make_buckets(claims, now=now)
    hashes = {theirs[0].key_hash for theirs in claims.values()}
    # held, so that nobody removes one meanwhile
    held = PolicyBucket.objects.held_for({policy.pk: hashes})
    buckets = {bucket.key_hash: bucket for bucket in held}
    slots = [
        PolicySlot(bucket=buckets[claim.key_hash], execution_id=id, taken_at=now)
        for id, (claim,) in claims.items()
        if claim.key_hash in buckets
    ]
    PolicySlot.objects.bulk_create(slots, ignore_conflicts=True)
