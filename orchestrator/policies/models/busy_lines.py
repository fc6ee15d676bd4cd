"""The turns of a busy line: each is a statement, which a process composes once.

A bucket that many wait for is filled again with each end, so the statements between an end and the
next start bound how much goes through it. All of this is for PostgreSQL; `waking` and `admitting`
do the same, for every kind of policy, with queries. A test compares both.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import cache
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS, connection

from orchestrator.core.models.execution_sets import BACKLOG, BY_LIMIT, DISPATCHED
from orchestrator.core.models.executions import Execution
from orchestrator.core.statements import Rows, Statement, off_disk
from orchestrator.policies.models.buckets import (
    HELD,
    TAKEN_WITHIN,
    PolicyBucket,
    PolicySlot,
    PolicyWait,
    in_line,
)
from orchestrator.policies.models.policies import Policy

BUCKETS, SLOTS, WAITS, POLICIES, EXECUTIONS = (
    model._meta.db_table for model in (PolicyBucket, PolicySlot, PolicyWait, Policy, Execution)
)


def are_statements() -> bool:
    """Return True if the database takes what is here."""
    return connection.vendor == "postgresql"


def pass_on(execution_ids: Collection[UUID], *, now: datetime, most: int) -> int:
    """Remove the slots and the waits of those of these executions that have ended, and make due who
    is next in their place, at most so many; returns how many. Of a transaction of its own a server
    that loses its power may forget it."""
    values = {"ids": list(execution_ids), "most": most} | _known_by_all(now)
    [(number,)] = _pass_on(off_disk()).execute(values)
    return int(number)


def make_first_due(bucket_ids: Collection[int], *, now: datetime, most: int) -> int:
    """Make due the first who wait for these buckets, of policies of concurrency, as many as have a
    place, at most so many of each; returns how many."""
    if not bucket_ids:
        return 0
    [(number,)] = _make_first_due().execute(
        {"buckets": list(bucket_ids), "most": most} | _known_by_all(now)
    )
    return int(number)


def write_starts(
    taken: Sequence[tuple[int, UUID]], gone: Collection[UUID], *, now: datetime
) -> None:
    """Write slots, each a bucket and an execution, and remove the waits of these executions."""
    _write_starts().execute(
        {
            "buckets": [bucket_id for bucket_id, _ in taken],
            "ids": [execution_id for _, execution_id in taken],
            "gone": list(gone),
            "now": now,
        }
    )


def held_for(wanted: Mapping[int, Collection[str]]) -> list[PolicyBucket]:
    """`PolicyBucket.objects.held_for`."""
    pairs = [(policy_id, each) for policy_id, hashes in wanted.items() for each in hashes]
    fetched = _held_for().execute(
        {"policies": [pair[0] for pair in pairs], "hashes": [pair[1] for pair in pairs]}
    )
    of_buckets, of_policies = _columns()
    own = len(of_buckets.columns)
    buckets = of_buckets.read((row[:own] for row in fetched), using=DEFAULT_DB_ALIAS)
    policies = of_policies.read((row[own:] for row in fetched), using=DEFAULT_DB_ALIAS)
    for bucket, policy in zip(buckets, policies, strict=True):
        bucket.policy = policy
    return buckets


def count_held(bucket_ids: Collection[int]) -> dict[int, int]:
    """`PolicySlot.objects.count_held`, for few buckets: it looks at one slot after the other."""
    values = {"buckets": list(bucket_ids), "dispatched": list(DISPATCHED)}
    return dict(_count_held().execute(values))


def _known_by_all(now: datetime) -> dict[str, object]:
    return {
        "now": now,
        "backlog": list(BACKLOG),
        "dispatched": list(DISPATCHED),
        "by_limit": BY_LIMIT,
        "due_after": now - TAKEN_WITHIN,
    }


# What both ways to make due have in common: of the buckets that are named, what is free, who is
# first in line, and of these those that nobody holds. One who is held is being looked at. Each part
# is materialized: a planner that knows nothing of the tables yet would read the line again for each
# execution.
NEXT = f"""
    places AS MATERIALIZED (
        SELECT bucket.id, policy."limit" - (
            SELECT count(*) FROM {SLOTS} AS slot
            WHERE slot.bucket_id = bucket.id AND EXISTS ({HELD})
        ) AS free
        FROM {BUCKETS} AS bucket JOIN {POLICIES} AS policy ON policy.id = bucket.policy_id
        WHERE bucket.id = ANY(SELECT id FROM named) AND policy.kind = '{Policy.Kind.CONCURRENCY}'
    ),
    first AS MATERIALIZED (
        SELECT line.execution_id FROM places CROSS JOIN LATERAL (
            {in_line("places.id")}
            LIMIT greatest(0, least(places.free, %(most)s::bigint))
        ) AS line
    ),
    unheld AS MATERIALIZED (
        SELECT id FROM {EXECUTIONS}
        WHERE id IN (SELECT execution_id FROM first) AND next_retry_at > %(now)s
          AND ended_at IS NULL AND starts_with(wait_reason, %(by_limit)s)
        ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
    ),
    due AS (
        UPDATE {EXECUTIONS} AS execution SET next_retry_at = %(now)s
        FROM unheld WHERE execution.id = unheld.id RETURNING 1
    )
    SELECT count(*) FROM due
"""  # noqa: S608 - every interpolated name is our own


@cache
def _pass_on(and_off_disk: str) -> Statement:
    return Statement(f"""
        WITH over AS (
            SELECT id FROM {EXECUTIONS}
            WHERE id = ANY(%(ids)s::uuid[]) AND ended_at IS NOT NULL
              AND {and_off_disk}
        ),
        gone AS (
            DELETE FROM {WAITS} AS wait USING over WHERE wait.execution_id = over.id
        ),
        freed AS (
            DELETE FROM {SLOTS} AS slot USING over
            WHERE slot.execution_id = over.id RETURNING slot.bucket_id
        ),
        named AS (SELECT DISTINCT bucket_id AS id FROM freed),
        {NEXT}
    """)  # noqa: S608 - every interpolated name is our own


@cache
def _make_first_due() -> Statement:
    return Statement(f"WITH named AS (SELECT unnest(%(buckets)s::bigint[]) AS id), {NEXT}")


@cache
def _write_starts() -> Statement:
    return Statement(f"""
        WITH gone AS (
            DELETE FROM {WAITS} WHERE execution_id = ANY(%(gone)s::uuid[])
        )
        INSERT INTO {SLOTS} (bucket_id, execution_id, taken_at)
        SELECT bucket_id, execution_id, %(now)s::timestamptz
        FROM unnest(%(buckets)s::bigint[], %(ids)s::uuid[]) AS taken (bucket_id, execution_id)
        ON CONFLICT DO NOTHING RETURNING 1
    """)  # noqa: S608 - every interpolated name is our own


@cache
def _held_for() -> Statement:
    of_buckets, of_policies = _columns()
    columns = [f'bucket."{name}"' for name in of_buckets.columns]
    columns += [f'policy."{name}"' for name in of_policies.columns]
    return Statement(f"""
        SELECT {", ".join(columns)}
        FROM {BUCKETS} AS bucket JOIN {POLICIES} AS policy ON policy.id = bucket.policy_id
        WHERE (bucket.policy_id, bucket.key_hash) IN (
            SELECT * FROM unnest(%(policies)s::bigint[], %(hashes)s::text[])
        )
        ORDER BY bucket.policy_id, bucket.key_hash FOR NO KEY UPDATE OF bucket
    """)  # noqa: S608 - every interpolated name is our own


@cache
def _count_held() -> Statement:
    return Statement(f"""
        SELECT slot.bucket_id, count(*) FROM {SLOTS} AS slot
        WHERE slot.bucket_id = ANY(%(buckets)s::bigint[]) AND EXISTS ({HELD})
        GROUP BY slot.bucket_id
    """)  # noqa: S608 - every interpolated name is our own


@cache
def _columns() -> tuple[Rows[PolicyBucket], Rows[Policy]]:
    return Rows(PolicyBucket), Rows(Policy)
