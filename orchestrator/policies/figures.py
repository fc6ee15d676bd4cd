"""The taken part of a bucket: for decisions, for waking, and for people."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from orchestrator.policies import periods
from orchestrator.policies.models import Policy, PolicyBucket, PolicySlot
from orchestrator.policies.periods import Period

CONCURRENCY_AGAIN = timedelta(minutes=5)
"""The pause between two looks at what waits for a place. It is woken when a place is free, by the
end of an execution or by the next tick of maintenance. Many may wait: nobody looks at all of them
more often than this."""

SOON = timedelta(milliseconds=100)
"""The time after which what only lets others go first is looked at again."""

SOON_AT_MOST = 1_000
"""The most of a rate that are looked after ahead of their time."""


class Places(Protocol):
    """The places of a bucket at one moment."""

    taken: int
    """By executions that were admitted since."""

    @property
    def free(self) -> int:
        """The number of executions that may start now, besides the taken places."""

    @property
    def counted(self) -> int:
        """The number of executions that count now: for people."""

    def soon(self, within: timedelta) -> int:
        """The number of places that come within this time, besides the free ones, without an end of
        anything. Not more than are woken at once."""

    def has_counted(self, sent_at: datetime) -> bool:
        """Return True if an execution that was sent to a worker then, and did not begin, is counted
        already, and need not be counted when it is sent again."""

    def again_at(self, ahead: int) -> datetime:
        """The time at which one that lets so many go first may start, as far as that can be
        known."""

    def write(self, started: int) -> None:
        """Count those that did start, in the bucket, in place of the taken places."""


@dataclass
class AtOnce:
    """Of a policy of concurrency: what workers hold."""

    bucket: PolicyBucket
    held: int
    now: datetime
    taken: int = 0

    @property
    def free(self) -> int:
        return max(0, self.bucket.policy.limit - self.held - self.taken)

    @property
    def counted(self) -> int:
        return self.held

    def soon(self, within: timedelta) -> int:
        return 0

    def has_counted(self, sent_at: datetime) -> bool:
        return False

    def again_at(self, ahead: int) -> datetime:
        return self.now + CONCURRENCY_AGAIN

    def write(self, started: int) -> None:
        self.held, self.taken = self.held + started, 0


@dataclass
class InWindow:
    """Of a policy of rate."""

    bucket: PolicyBucket
    now: datetime
    taken: int = 0

    @property
    def free(self) -> int:
        places = self.bucket.policy.rate.places(self.bucket.theoretical_at, self.now)
        return max(0, places - self.taken)

    @property
    def counted(self) -> int:
        return self.bucket.policy.limit - self.free

    def soon(self, within: timedelta) -> int:
        return min(SOON_AT_MOST, within // self.bucket.policy.rate.interval)

    def has_counted(self, sent_at: datetime) -> bool:
        # it starts now and not then: counted only then, this window could have too many
        return False

    def again_at(self, ahead: int) -> datetime:
        rate, stored = self.bucket.policy.rate, self.bucket.theoretical_at
        return max(rate.at(stored, self.now, self.taken + ahead), self.now + SOON)

    def write(self, started: int) -> None:
        rate, stored = self.bucket.policy.rate, self.bucket.theoretical_at
        self.bucket.theoretical_at, self.taken = rate.after(stored, self.now, started), 0


@dataclass
class InPeriod:
    """Of a policy of quota. What was counted in a period is never lowered within it."""

    bucket: PolicyBucket
    now: datetime
    taken: int = 0

    @property
    def begun(self) -> datetime:
        policy = self.bucket.policy
        begun = periods.start(self.now, policy.period, policy.zone)
        stored = self.bucket.period_started_at
        # a process whose clock is a little behind must not begin the period before again
        return begun if stored is None else max(begun, stored)

    @property
    def used(self) -> int:
        return self.bucket.used if self.begun == self.bucket.period_started_at else 0

    @property
    def free(self) -> int:
        return max(0, self.bucket.policy.limit - self.used - self.taken)

    @property
    def counted(self) -> int:
        return self.used

    def soon(self, within: timedelta) -> int:
        return 0

    def has_counted(self, sent_at: datetime) -> bool:
        # before its last change, perhaps nobody counted
        return self.used > 0 and sent_at >= max(self.begun, self.bucket.policy.updated_at)

    def again_at(self, ahead: int) -> datetime:
        policy = self.bucket.policy
        if self.free > ahead:
            return self.now + SOON
        most = periods.A_YEAR[Period(policy.period)]
        later = min(1 + (ahead - self.free) // policy.limit, most)
        return periods.following(self.begun, policy.period, policy.zone, number=later)

    def write(self, started: int) -> None:
        self.bucket.used, self.bucket.period_started_at = self.used + started, self.begun
        self.taken = 0


def places_of(
    buckets: Iterable[PolicyBucket],
    *,
    now: datetime,
    count_held: Callable[[Collection[int]], dict[int, int]] | None = None,
) -> dict[int, Places]:
    """The places of these buckets, each loaded with its policy. One statement, if there is one of a
    policy of concurrency: its slots are counted by `count_held`. Exact for buckets that are held.
    """
    known = list(buckets)
    kinds = Policy.Kind
    at_once = [each.pk for each in known if each.policy.kind == kinds.CONCURRENCY]
    count = count_held or PolicySlot.objects.count_held
    held = count(at_once) if at_once else {}
    places: dict[int, Places] = {}
    for bucket in known:
        if bucket.policy.kind == kinds.CONCURRENCY:
            places[bucket.pk] = AtOnce(bucket, held.get(bucket.pk, 0), now)
        elif bucket.policy.kind == kinds.RATE:
            places[bucket.pk] = InWindow(bucket, now)
        else:
            places[bucket.pk] = InPeriod(bucket, now)
    return places


def shorten_debt(policy: Policy, *, now: datetime) -> int:
    """Let the buckets of a rate owe no more than a window from now, in the caller's transaction;
    returns how many did. They come from a longer window, or from a later clock."""
    latest = now + policy.rate.window
    return policy.buckets.filter(theoretical_at__gt=latest).change_held(theoretical_at=latest)
