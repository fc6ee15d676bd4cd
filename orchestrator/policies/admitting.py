"""The decision which executions may start, for one batch in one transaction.

1. Find the policies of each execution, and the key of it for each policy.
2. Hold their buckets, all in one order. From here nobody else counts in them.
3. Read what is taken, and who waits. These statements see all that was written by who held the
   buckets before.
4. Decide in the order of priority and age. All policies of an execution have to admit it, and one
   that refuses takes nothing of the others. Who is in line does not let others pass.
5. After the executions have been written, write what those that did start have taken.

Nothing is ever given back: what an execution holds of a policy of concurrency counts while a worker
holds the execution, whoever ends it, and whoever dies.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from django.db import transaction

from orchestrator.core.admission import Refusal
from orchestrator.core.models import Execution
from orchestrator.core.models.execution_sets import BY_LIMIT
from orchestrator.core.reasons import Known, Reason
from orchestrator.policies import book, figures, keys, metrics, waking
from orchestrator.policies.figures import Places
from orchestrator.policies.models import (
    Policy,
    PolicyBucket,
    PolicySlot,
    PolicyWait,
    busy_lines,
)

Turn = tuple[int, UUID]
"""The place of an execution in every line: by priority, the highest first, then by age."""

READ_AHEAD = 1_000
"""So many of each line are read to say when a place comes. Who is further behind is told a time
that may be a little late; `maintenance.wake` looks after the first ones."""

COUNTED = ("used_at", "theoretical_at", "period_started_at", "used")
USED_WITHIN = timedelta(seconds=1)
"""A busy bucket says so often when something last started in it."""

NEVER_BEGAN = frozenset({reason for reason in Reason if reason.known is Known.NEVER_STARTED})
NEVER_SEEN = NEVER_BEGAN - {Reason.TASK_REJECTED}
"""The reasons of ends of attempts of which the action has seen nothing. It has seen one that asks
to be run later."""


class Claim(NamedTuple):
    """A bucket that has to admit an execution."""

    policy: Policy
    key_hash: str
    parameters: Mapping[str, Any]
    schema: Mapping[str, Any]

    @property
    def key(self) -> book.BucketKey:
        return self.policy.pk, self.key_hash

    @property
    def key_shown(self) -> str:
        return keys.shown(self.parameters, self.policy.keyed_by, schema=self.schema)


@dataclass
class Line:
    """A bucket that is held, with its places and who waits for it."""

    bucket: PolicyBucket
    places: Places
    first: list[Turn] = field(default_factory=list)
    """The first of those that wait and are not of this batch, as many as there are places."""
    refused: dict[UUID, int] = field(default_factory=dict)
    """Of this batch, and how many of it were refused before each: they are in line before those
    that come after them."""
    admitted: list[UUID] = field(default_factory=list)

    def admits(self, turn: Turn) -> bool:
        return self.places.free > bisect_left(self.first, turn) + len(self.refused)

    def refuse(self, execution_id: UUID) -> None:
        self.refused[execution_id] = len(self.refused)

    def admit(self, execution_id: UUID) -> None:
        self.places.taken += 1
        self.admitted.append(execution_id)


@dataclass
class Batch:
    """The answer of `ask`."""

    now: datetime
    lines: Mapping[int, Line] = field(default_factory=dict)
    executions: Mapping[UUID, Execution] = field(default_factory=dict)
    refused: dict[UUID, Refusal] = field(default_factory=dict)
    waits_for: dict[UUID, Line] = field(default_factory=dict)
    rejected_by: Counter[str] = field(default_factory=Counter)

    def take(self, started: Collection[UUID]) -> None:
        """Count those that did start, and let the refused ones stand in line."""
        slots: list[tuple[int, UUID]] = []
        used: list[PolicyBucket] = []
        for line in self.lines.values():
            ids = [id for id in line.admitted if id in started]
            line.places.write(len(ids))
            if not ids:
                continue
            used.append(line.bucket)
            if line.bucket.policy.kind == Policy.Kind.CONCURRENCY:
                slots += [(line.bucket.pk, id) for id in ids]
        gone = [*started, *(id for id in self.refused if id not in self.waits_for)]
        if self.lines and gone:
            _write_starts(slots, gone, self.now)
        _write(used, self.now)
        self._stand_in_line()
        if self.rejected_by:
            metrics.REJECTED.add(self.rejected_by)
        self._wake()

    def _stand_in_line(self) -> None:
        waits = [
            PolicyWait(
                execution_id=id,
                bucket=line.bucket,
                priority=self.executions[id].priority,
                since=self.now,
            )
            # in the order in which everybody writes them
            for id, line in sorted(self.waits_for.items(), key=lambda each: each[0])
        ]
        PolicyWait.objects.bulk_create(
            waits,
            update_conflicts=True,
            unique_fields=["execution"],
            update_fields=["bucket", "priority"],
        )

    def _wake(self) -> None:
        """Those in line for whom there is a place, and who are not due: nobody else will do it if
        the one that was due for it went to another line."""
        lines = self.lines.values()
        with_places = [line.bucket for line in lines if line.first and line.places.free]
        if with_places:
            waking.first_of_held(with_places, now=self.now)


def ask(executions: Sequence[Execution], *, now: datetime) -> Batch:
    """Decide which of these may start. Inside a transaction."""
    claims = _claims(executions)
    if not claims:
        return Batch(now)
    lines = _hold(claims, now)
    by_id = {execution.pk: execution for execution in executions if execution.pk in claims}
    _read_lines(lines, by_id, now)
    by_key = {(line.bucket.policy_id, line.bucket.key_hash): line for line in lines.values()}
    sent_at = _sent_but_not_begun(by_id.values(), lines.values())
    batch = Batch(now, lines, by_id)
    for execution in sorted(by_id.values(), key=_turn):
        theirs = claims[execution.pk]
        if not all(_is_known(each, by_key.get(each.key)) for each in theirs):
            refusal = Refusal(f"{BY_LIMIT}{theirs[0].policy.ref}", now + figures.SOON)
            batch.refused[execution.pk] = refusal
            book.forget()
            continue
        of_them = [by_key[each.key] for each in theirs]
        at = sent_at.get(execution.pk)
        counting = [
            line
            for line in of_them
            if line.bucket.policy.is_in_force and not (at and line.places.has_counted(at))
        ]
        _decide(batch, execution, counting)
    _date(batch)
    return batch


def _turn(execution: Execution) -> Turn:
    return -execution.priority, execution.pk


def _is_known(claim: Claim, line: Line | None) -> bool:
    """Return False if it has to be looked at again with a new view of the policies.

    Its bucket was old and has just been removed, and is made again. Or it was found with the key
    that its policy had before: it would count where nobody looks.
    """
    return line is not None and line.bucket.policy.keyed_by == claim.policy.keyed_by


def _decide(batch: Batch, execution: Execution, lines: Sequence[Line]) -> None:
    """Admit it to all of its lines, or to none."""
    turn = _turn(execution)
    refusing = [line for line in lines if not line.admits(turn)]
    if not refusing:
        for line in lines:
            line.admit(execution.pk)
        return
    for line in refusing:
        policy = line.bucket.policy
        # what was sent to a worker before was admitted, and perhaps it has begun: that it never
        # started would not be true
        if policy.on_exceed == Policy.OnExceed.REJECT and execution.attempt == 0:
            batch.refused[execution.pk] = Refusal(_why(line), None)
            batch.rejected_by[policy.kind] += 1
            return
    for line in refusing:
        line.refuse(execution.pk)


def _date(batch: Batch) -> None:
    """Say of each that has to wait until when: by the line that keeps it for the longest."""
    dated: dict[UUID, tuple[datetime, Line]] = {}
    refusing = [line for line in batch.lines.values() if line.refused]
    others = _others(refusing, batch)
    for line in refusing:
        for id, number in line.refused.items():
            ahead = others[line.bucket.pk].before(_turn(batch.executions[id]))
            again_at = line.places.again_at(number + ahead)
            if id not in dated or again_at > dated[id][0]:
                dated[id] = again_at, line
    for id, (again_at, line) in dated.items():
        batch.refused[id] = Refusal(_why(line), again_at)
        batch.waits_for[id] = line


@dataclass
class Others:
    """Those that wait for a bucket and are not of this batch: the first ones, and their number."""

    turns: list[Turn] = field(default_factory=list)
    number: int = 0

    def before(self, turn: Turn) -> int:
        place = bisect_left(self.turns, turn)
        return place if place < len(self.turns) else max(place, self.number)


def _others(lines: Sequence[Line], batch: Batch) -> dict[int, Others]:
    """Those that wait for these, by bucket. One statement, and another if a line is long."""
    others = {line.bucket.pk: Others() for line in lines}
    # of a policy of concurrency nobody knows when a place becomes free
    kinds = {line.bucket.pk: line.bucket.policy.kind for line in lines}
    dated = {id: READ_AHEAD for id, kind in kinds.items() if kind != Policy.Kind.CONCURRENCY}
    read = Counter[int]()
    for each in PolicyWait.objects.next_in_line(dated, batch.now):
        read[each.bucket_id] += 1
        if each.execution_id not in batch.executions:
            others[each.bucket_id].turns.append(each.turn)
    long = [id for id, number in read.items() if number == READ_AHEAD]
    if long:
        for id, number in PolicyWait.objects.filter(bucket__in=long).count_by_bucket().items():
            others[id].number = number
    return others


def _why(line: Line) -> str:
    key = f" for {line.bucket.key_shown}" if line.bucket.key_shown else ""
    return f"{BY_LIMIT}{line.bucket.policy.ref}{key}: {line.bucket.policy.text}"


def _write(buckets: Sequence[PolicyBucket], now: datetime) -> None:
    """Write what was counted: of a policy of concurrency only when something last started."""
    counting = [each for each in buckets if each.policy.kind != Policy.Kind.CONCURRENCY]
    for bucket in counting:
        bucket.used_at = now
    PolicyBucket.objects.bulk_update(counting, COUNTED)
    used = [
        each.pk
        for each in buckets
        if each.policy.kind == Policy.Kind.CONCURRENCY and now - each.used_at >= USED_WITHIN
    ]
    if used:
        PolicyBucket.objects.filter(pk__in=used).update(used_at=now)


def _write_starts(slots: Sequence[tuple[int, UUID]], gone: Collection[UUID], now: datetime) -> None:
    """Write these slots, each a bucket and an execution, and remove the waits of these executions,
    which have started or ended."""
    if busy_lines.are_statements():
        busy_lines.write_starts(slots, gone, now=now)
        return
    PolicySlot.objects.bulk_create(
        [PolicySlot(bucket_id=bucket, execution_id=id, taken_at=now) for bucket, id in slots],
        ignore_conflicts=True,
    )
    PolicyWait.objects.filter(execution__in=gone).delete()


# --- reading -------------------------------------------------------------------------------------


def _claims(executions: Sequence[Execution]) -> dict[UUID, list[Claim]]:
    """The buckets that have to admit each execution that a policy concerns."""
    known = book.current()
    if known.by_requester:
        rows = Execution.objects.filter(pk__in=[execution.pk for execution in executions])
        requesters = dict(rows.values_list("pk", "requested_by"))
    else:
        requesters = {}
    concerned = {
        execution.pk: theirs
        for execution in executions
        if (theirs := known.of(execution.action_ref, requesters.get(execution.pk, "")))
    }
    return claims_of({e.pk: e for e in executions}, concerned)


def claims_of(
    executions: Mapping[UUID, Execution], policies: Mapping[UUID, Sequence[Policy]]
) -> dict[UUID, list[Claim]]:
    """The buckets of these policies for each execution."""
    keyed = [pk for pk, theirs in policies.items() if any(each.keyed_by for each in theirs)]
    rows = Execution.objects.filter(pk__in=keyed) if keyed else Execution.objects.none()
    parameters = dict(rows.values_list("pk", "parameters"))
    return {
        pk: [
            _claim(policy, parameters.get(pk, {}), executions[pk].action.parameters_schema)
            for policy in theirs
        ]
        for pk, theirs in policies.items()
    }


def _claim(policy: Policy, parameters: Mapping[str, Any], schema: Mapping[str, Any]) -> Claim:
    values = keys.values_of(parameters, policy.keyed_by)
    return Claim(policy, keys.hash_of(policy.keyed_by, values), parameters, schema)


def make_buckets(claims: Mapping[UUID, Sequence[Claim]], *, now: datetime) -> None:
    """Make the buckets that are missing, in the order in which they are held."""
    wanted: dict[book.BucketKey, Claim] = {}
    for theirs in claims.values():
        for claim in theirs:
            wanted.setdefault(claim.key, claim)
    hashes = {key_hash for _, key_hash in wanted}
    rows = PolicyBucket.objects.filter(
        policy_id__in={policy_id for policy_id, _ in wanted}, key_hash__in=hashes
    )
    missing = sorted(wanted.keys() - set(rows.values_list("policy_id", "key_hash")))
    PolicyBucket.objects.bulk_create(
        [
            PolicyBucket(
                policy=wanted[key].policy,
                key_hash=key[1],
                key_shown=wanted[key].key_shown,
                keyed_by=wanted[key].policy.keyed_by,
                used_at=now,
            )
            for key in missing
        ],
        ignore_conflicts=True,
    )


def _hold(claims: Mapping[UUID, Sequence[Claim]], now: datetime) -> dict[int, Line]:
    wanted = {claim.key for theirs in claims.values() for claim in theirs}
    there = book.current().buckets
    if not wanted <= there:
        make_buckets(claims, now=now)
        transaction.on_commit(partial(there.update, wanted))
    hashes: dict[int, set[str]] = defaultdict(set)
    for policy_id, key_hash in wanted:
        hashes[policy_id].add(key_hash)
    if busy_lines.are_statements():
        buckets = busy_lines.held_for(hashes)
        places = figures.places_of(buckets, now=now, count_held=busy_lines.count_held)
    else:
        buckets = PolicyBucket.objects.held_for(hashes)
        places = figures.places_of(buckets, now=now)
    return {bucket.pk: Line(bucket, places[bucket.pk]) for bucket in buckets}


def _read_lines(
    lines: Mapping[int, Line], executions: Mapping[UUID, Execution], now: datetime
) -> None:
    """Read who waits first for each. Those of this batch are decided about in any case."""
    places = {id: line.places.free + len(executions) for id, line in lines.items()}
    free = {id: number for id, number in places.items() if lines[id].places.free}
    for each in PolicyWait.objects.next_in_line(free, now):
        if each.execution_id not in executions:
            lines[each.bucket_id].first.append(each.turn)


def _sent_but_not_begun(
    executions: Collection[Execution], lines: Collection[Line]
) -> dict[UUID, datetime]:
    """The times at which those of these were sent to a worker whose last attempt did not begin, if
    that matters: a quota has counted them already."""
    again = [execution.pk for execution in executions if execution.attempt > 0]
    if not again or all(line.bucket.policy.kind != Policy.Kind.QUOTA for line in lines):
        return {}
    rows = Execution.objects.filter(pk__in=again, reason__in=NEVER_SEEN)
    return {id: at for id, at in rows.values_list("pk", "scheduled_at") if at is not None}
