"""The policies in force, as this process knows them: as they were at most a second ago.

Without policies that is one statement a second, and none for a batch. What an old view of them
misses is made good: see `adopting`. A limit itself is never old: it is read again with the bucket.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from django.db.models import Q
from django.db.models.signals import post_save

from orchestrator.core.models import Execution
from orchestrator.core.models.prepared import Prepared
from orchestrator.policies.models import Policy

KNOWN_FOR_SECONDS = 1.0

OF_RULE = "rule:"
"""The beginning of the requester of what a rule runs: `orchestrator.automation` writes it, and no
caller's name begins so."""

Scope = Policy.Scope

BucketKey = tuple[int, str]
"""A policy's id, and the hash of a key."""


@dataclass(frozen=True)
class Book:
    """Policies by what they concern."""

    everywhere: Sequence[Policy] = ()
    by_pack: Mapping[str, Sequence[Policy]] = field(default_factory=dict)
    by_action: Mapping[str, Sequence[Policy]] = field(default_factory=dict)
    by_requester: Mapping[str, Sequence[Policy]] = field(default_factory=dict)
    """By `Execution.requested_by`: those of identities and of rules."""
    buckets: set[BucketKey] = field(default_factory=set)
    """Of these policies, those that are known to be there. One that was removed is missed when it
    is to be held."""

    @property
    def is_empty(self) -> bool:
        return not (self.everywhere or self.by_pack or self.by_action or self.by_requester)

    def of_action(self, ref: str) -> list[Policy]:
        """Those that concern every execution of an action."""
        pack = ref.partition(".")[0]
        return [*self.everywhere, *self.by_pack.get(pack, ()), *self.by_action.get(ref, ())]

    def of(self, ref: str, requested_by: str) -> list[Policy]:
        """Those that concern an execution: all of them have to admit it."""
        return [*self.of_action(ref), *self.by_requester.get(requested_by, ())]

    @property
    def condition(self) -> Q:
        """The condition for the executions that one of them concerns."""
        if self.everywhere:
            return Q()
        condition = Q(action_ref__in=list(self.by_action))
        condition |= Q(requested_by__in=list(self.by_requester))
        for pack in self.by_pack:
            condition |= Q(action_ref__startswith=f"{pack}.")
        return condition

    def may_concern(self, execution: Execution) -> bool:
        """Return True if one of them concerns it, or if that cannot be told from what was loaded
        of it."""
        if self.is_empty:
            return False
        if self.of_action(execution.action_ref):
            return True
        if not self.by_requester:
            return False
        loaded = "requested_by" not in execution.get_deferred_fields()
        return not loaded or execution.requested_by in self.by_requester


_in_force = Prepared(lambda: Policy.objects.in_force())

_read: tuple[float, Book] | None = None


def current() -> Book:
    """The policies in force."""
    global _read
    now, known = time.monotonic(), _read
    if known is None or now - known[0] >= KNOWN_FOR_SECONDS:
        known = _read = (now, of(_in_force()))
    return known[1]


def forget(**_: object) -> None:
    """Have them read again, after this process itself has changed one."""
    global _read
    _read = None


post_save.connect(forget, sender=Policy)


def of(policies: Iterable[Policy]) -> Book:
    """The book of these."""
    groups: dict[str, dict[str, list[Policy]]] = defaultdict(lambda: defaultdict(list))
    for policy in policies:
        groups[policy.scope][policy.target].append(policy)
    requesters = groups[Scope.IDENTITY]
    for ref, theirs in groups[Scope.RULE].items():
        # somebody may have named the same requester as an identity
        requesters[requester_of_rule(ref)] += theirs
    return Book(
        groups[Scope.GLOBAL].get("", ()),
        dict(groups[Scope.PACK]),
        dict(groups[Scope.ACTION]),
        dict(requesters),
    )


def requester_of_rule(ref: str) -> str:
    """`Execution.requested_by` of what this rule runs."""
    return f"{OF_RULE}{ref}"
