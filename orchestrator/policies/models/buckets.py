"""The counts of policies: a bucket for each value that a policy is keyed by."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from functools import cache
from typing import Any, ClassVar, NamedTuple
from uuid import UUID

from django.db import connection, models
from django.db.models import F, Q, Window
from django.db.models.functions import RowNumber

from orchestrator.core.models.execution_sets import BACKLOG, BY_LIMIT, DISPATCHED
from orchestrator.core.models.executions import Execution
from orchestrator.core.statements import Statement
from orchestrator.policies.models.policies import Policy

KEY_SHOWN_MAX = 100

TAKEN_WITHIN = timedelta(seconds=10)
"""One that is due, and that nobody has looked at for longer than this, keeps nobody behind it
waiting: its queue is paused, for example. While all workers are full nobody looks, so it is not
short."""


class InLine(NamedTuple):
    """One that waits for a bucket."""

    bucket_id: int
    priority: int
    execution_id: UUID
    next_retry_at: datetime
    """Of its execution: when it is looked at again."""

    @property
    def turn(self) -> tuple[int, UUID]:
        """Its place in every line: by priority, the highest first, then by age."""
        return -self.priority, self.execution_id


class PolicyBucketQuerySet(models.QuerySet["PolicyBucket"]):
    def held_for(self, wanted: Mapping[int, Collection[str]]) -> list[PolicyBucket]:
        """Hold the buckets with these keys, by policy, until the transaction ends, each with its
        policy as it is now. All in one order, so that no two batches wait for each other."""
        named = Q(pk__in=())
        for policy_id, hashes in wanted.items():
            named |= Q(policy_id=policy_id, key_hash__in=hashes)
        held = self.filter(named).select_related("policy").order_by("policy_id", "key_hash")
        return list(held.select_for_update(no_key=True, of=("self",)))

    def hold(self) -> list[int]:
        """Hold these buckets, in the same order, until the transaction ends; returns their ids."""
        rows = self.order_by("policy_id", "key_hash").values_list("pk", flat=True)
        return list(rows.select_for_update(of=("self",)))

    def change_held(self, **values: Any) -> int:
        """Hold these buckets, then change them; returns how many."""
        return self.model.objects.filter(pk__in=self.hold()).update(**values)


class PolicyBucket(models.Model):
    """The counts of one policy for one value of what it is keyed by."""

    policy = models.ForeignKey(
        Policy, on_delete=models.CASCADE, related_name="buckets", db_index=False
    )
    policy_id: int
    key_hash = models.CharField(max_length=64, help_text="SHA-256 of the key and its values.")
    key_shown = models.CharField(
        max_length=KEY_SHOWN_MAX, blank=True, help_text="The values, without secrets."
    )
    keyed_by = models.JSONField(default=list, help_text="The key: its policy may have another now.")
    theoretical_at = models.DateTimeField(null=True, help_text="Of a rate: see `gcra`.")
    period_started_at = models.DateTimeField(null=True, help_text="Of a quota.")
    used = models.PositiveIntegerField(default=0, help_text="Of a quota, in that period.")
    used_at = models.DateTimeField(help_text="When something last started.")

    objects: ClassVar[PolicyBucketQuerySet] = PolicyBucketQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering = ["policy", "key_hash"]
        constraints = [
            models.UniqueConstraint("policy", "key_hash", name="policy_bucket_is_unique"),
        ]

    def __str__(self) -> str:
        return f"{self.policy} for {self.key_shown}" if self.key_shown else str(self.policy)


def _without_constraint(**more: Any) -> Any:
    """An execution that may be gone: nobody has to remove what we counted of it first."""
    return models.ForeignKey(
        Execution, on_delete=models.DO_NOTHING, related_name="+", db_constraint=False, **more
    )


class PolicySlotQuerySet(models.QuerySet["PolicySlot"]):
    def held(self) -> PolicySlotQuerySet:
        """Of executions that workers hold now. Nothing has to be released: their end does it."""
        return self.filter(execution__ended_at__isnull=True, execution__status__in=DISPATCHED)

    def count_held(self, bucket_ids: Collection[int]) -> dict[int, int]:
        """The number of those of each bucket, without buckets that have none."""
        rows = self.held().filter(bucket_id__in=bucket_ids).order_by().values_list("bucket_id")
        return dict(rows.annotate(held=models.Count("pk")))

    def count_up_to(self, most: Mapping[int, int]) -> dict[int, int]:
        """The number of those of each of these policies, by its id: of each no more than so many,
        whatever its buckets hold."""
        if connection.vendor == "postgresql":
            values = {
                "policies": list(most),
                "most": list(most.values()),
                "dispatched": list(DISPATCHED),
            }
            return dict(_count_up_to().execute(values)) if most else {}
        rows = self.held().filter(bucket__policy__in=most).order_by()
        counted = rows.values_list("bucket__policy").annotate(held=models.Count("pk"))
        return {id: min(held, most[id]) for id, held in counted}


HELD = f"""
    SELECT FROM {Execution._meta.db_table} AS execution
    WHERE execution.id = slot.execution_id AND execution.ended_at IS NULL
      AND execution.status = ANY(%(dispatched)s)
    OFFSET 0
"""
"""The query of the execution that holds a `slot`, begun with the slot: see `in_line`."""


def free_ended(execution_ids: Collection[UUID]) -> set[int]:
    """Remove the slots and the waits of those of these executions that have ended; returns the
    buckets in which they had slots."""
    over = Execution.objects.filter(pk__in=execution_ids, ended_at__isnull=False).values("pk")
    slots = PolicySlot.objects.filter(execution__in=over)
    freed = dict(slots.values_list("pk", "bucket_id"))
    PolicyWait.objects.filter(execution__in=over).delete()
    PolicySlot.objects.filter(pk__in=freed).delete()
    return set(freed.values())


class PolicySlot(models.Model):
    """The place that an execution holds of a policy of concurrency while a worker holds the
    execution."""

    bucket = models.ForeignKey(
        PolicyBucket, on_delete=models.CASCADE, related_name="slots", db_index=False
    )
    bucket_id: int
    execution = _without_constraint()
    execution_id: UUID
    taken_at = models.DateTimeField()

    objects: ClassVar[PolicySlotQuerySet] = PolicySlotQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        constraints = [
            models.UniqueConstraint("bucket", "execution", name="policy_slot_is_unique"),
        ]

    def __str__(self) -> str:
        return f"{self.execution_id} in {self.bucket_id}"


@cache
def _count_up_to() -> Statement:
    """It looks at one slot after the other, and stops: all that a full fleet holds would take as
    long as the fleet is large."""
    return Statement(f"""
        SELECT wanted.id, (SELECT count(*) FROM (
            SELECT FROM {PolicyBucket._meta.db_table} AS bucket
            JOIN {PolicySlot._meta.db_table} AS slot ON slot.bucket_id = bucket.id
            WHERE bucket.policy_id = wanted.id AND EXISTS ({HELD})
            LIMIT wanted.most
        ) AS held)
        FROM unnest(%(policies)s::bigint[], %(most)s::bigint[]) AS wanted (id, most)
    """)  # noqa: S608 - every interpolated name is our own


class PolicyWaitQuerySet(models.QuerySet["PolicyWait"]):
    def waiting(self) -> PolicyWaitQuerySet:
        """Of executions that still wait for a policy. One that waits for a worker by now does not:
        it was looked at, and the policy would have let it go."""
        return self.filter(
            execution__ended_at__isnull=True,
            execution__status__in=BACKLOG,
            execution__wait_reason__startswith=BY_LIMIT,
        )

    def count_by_bucket(self) -> dict[int, int]:
        rows = self.order_by().values_list("bucket_id")
        return dict(rows.annotate(number=models.Count("pk")))

    def next_in_line(self, places: Mapping[int, int], now: datetime) -> list[InLine]:
        """The first ones of each bucket, as many as it has places, in their order. Those that were
        due and that nobody has looked at for long are passed over."""
        wanted = {bucket_id: number for bucket_id, number in places.items() if number > 0}
        if not wanted:
            return []
        due_after = now - TAKEN_WITHIN
        if connection.vendor == "postgresql":
            values = {
                "buckets": list(wanted),
                "numbers": list(wanted.values()),
                "backlog": list(BACKLOG),
                "by_limit": BY_LIMIT,
                "due_after": due_after,
            }
            return [InLine(*row) for row in _next_in_line().execute(values)]
        place = Window(
            RowNumber(), partition_by="bucket_id", order_by=[F("priority").desc(), "execution_id"]
        )
        rows = self.waiting().filter(bucket_id__in=wanted, execution__next_retry_at__gt=due_after)
        rows = rows.annotate(place=place).filter(place__lte=max(wanted.values()))
        found = rows.order_by("bucket_id", "place").values_list(
            "bucket_id", "priority", "execution_id", "execution__next_retry_at", "place"
        )
        return [
            InLine(bucket_id, priority, execution_id, at)
            for bucket_id, priority, execution_id, at, place in found
            if at is not None and place <= wanted[bucket_id]
        ]


def in_line(bucket_id: str) -> str:
    """The query of who waits for the bucket that is named by this expression, in their order, for a
    statement in which `due_after`, `backlog` and `by_limit` are known.

    OFFSET keeps the planner from turning it around: it would begin with all open executions as long
    as it knows nothing of a line, and read all of it for the first ones.
    """
    return f"""
        SELECT wait.bucket_id, wait.priority, wait.execution_id, execution.next_retry_at
        FROM {PolicyWait._meta.db_table} AS wait CROSS JOIN LATERAL (
            SELECT execution.next_retry_at FROM {Execution._meta.db_table} AS execution
            WHERE execution.id = wait.execution_id AND execution.ended_at IS NULL
              AND execution.status = ANY(%(backlog)s)
              AND starts_with(execution.wait_reason, %(by_limit)s)
              AND execution.next_retry_at > %(due_after)s
            OFFSET 0
        ) AS execution
        WHERE wait.bucket_id = {bucket_id}
        ORDER BY wait.priority DESC, wait.execution_id
    """  # noqa: S608 - every interpolated name is our own


@cache
def _next_in_line() -> Statement:
    """The same for any number of buckets: of each line it reads no more than the wanted ones, and
    not all that waits. A test compares both."""
    return Statement(f"""
        SELECT first.*
        FROM unnest(%(buckets)s::bigint[], %(numbers)s::int[]) AS wanted (bucket_id, number)
        CROSS JOIN LATERAL (
            {in_line("wanted.bucket_id")}
            LIMIT wanted.number
        ) AS first
        ORDER BY first.bucket_id, first.priority DESC, first.execution_id
    """)  # noqa: S608 - every interpolated name is our own


class PolicyWait(models.Model):
    """An execution that waits for a bucket, and its place in the line."""

    execution = _without_constraint(db_index=False)
    execution_id: UUID
    bucket = models.ForeignKey(
        PolicyBucket, on_delete=models.CASCADE, related_name="waits", db_index=False
    )
    bucket_id: int
    priority = models.SmallIntegerField()
    since = models.DateTimeField()

    objects: ClassVar[PolicyWaitQuerySet] = PolicyWaitQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        indexes = [
            models.Index("bucket", F("priority").desc(), "execution", name="policy_wait_line"),
        ]
        constraints = [
            models.UniqueConstraint("execution", name="policy_wait_of_execution_is_unique"),
        ]

    def __str__(self) -> str:
        return f"{self.execution_id} for {self.bucket_id}"

    @property
    def ahead(self) -> PolicyWaitQuerySet:
        """Those before it in the same line."""
        earlier = Q(priority=self.priority, execution_id__lt=self.execution_id)
        line = PolicyWait.objects.waiting().filter(bucket=self.bucket_id)
        return line.filter(Q(priority__gt=self.priority) | earlier)
