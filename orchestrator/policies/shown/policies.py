"""A policy and its buckets: as JSON, and as facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from django.db.models import Count, Min
from pydantic import Field

from orchestrator.core import words
from orchestrator.core.models import Execution
from orchestrator.core.shown.documents import Shown
from orchestrator.core.shown.values import At, Fact, Link, State, said
from orchestrator.policies import figures
from orchestrator.policies.models import Policy, PolicyBucket, PolicySlot, PolicyWait
from orchestrator.policies.states import KINDS

COUNTED_MAX = 500
"""More that is held of a policy is not counted in lists."""


class PolicyOut(Shown):
    """A policy, and how much of it is taken now."""

    ref: str
    description: str
    state: str = Field(description="`enabled`, `disabled` or `removed`.")
    enabled: bool
    kind: str = Field(description="`concurrency`, `rate` or `quota`.")
    scope: str = Field(description="`global`, `pack`, `action`, `identity` or `rule`.")
    target: str = Field(description="The pack, action, requester or rule; empty if global.")
    limit: int
    window_seconds: float | None
    period: str
    timezone: str
    keyed_by: list[str] = Field(description="Each combination of these parameters has the limit.")
    on_exceed: str = Field(description="`wait` or `reject`.")
    text: str = Field(description="The limit in words.")
    held: int = Field(description="Executions that workers hold of it, over all its buckets.")
    waiting: int = Field(description="Executions that wait for it, over all its buckets.")
    oldest_wait_seconds: float = Field(description="For how long the first of them has waited.")
    pack: str | None
    created_at: datetime
    updated_at: datetime


class BucketOut(Shown):
    """The counts of a policy for one value of its key."""

    id: int
    key: str = Field(description="The values of its key, without secrets; empty without a key.")
    taken: int = Field(description="Held now, or started in the window or period.")
    free: int = Field(description="How many more may start now.")
    waiting: int
    next_due_at: datetime | None = Field(description="When the first that waits is looked at.")
    used_at: datetime = Field(description="When something last started.")


def all_of(policies: Iterable[Policy], *, now: datetime) -> list[PolicyOut]:
    """Convert policies, each loaded with its pack."""
    rows = list(policies)
    by = "bucket__policy_id"
    slots = PolicySlot.objects.held().filter(**{f"{by}__in": [row.pk for row in rows]}).order_by()
    held = dict(slots.values_list(by).annotate(number=Count("pk")))
    return _out_all(rows, held, now)


def listed(policies: Iterable[Policy], *, now: datetime) -> list[PolicyOut]:
    """The same, but what is held of a policy is counted up to `most_held`: all of it may be as much
    as the fleet has slots, for each policy."""
    rows = list(policies)
    most = {
        row.pk: most_held(row.limit, row.keyed_by)
        for row in rows
        if row.kind == Policy.Kind.CONCURRENCY
    }
    return _out_all(rows, PolicySlot.objects.count_up_to(most), now)


def most_held(limit: int, keyed_by: Sequence[str]) -> int:
    """So many are counted of a policy in lists: then it holds more than its limit, or than
    `COUNTED_MAX`. With a key, each of its buckets has the limit."""
    return 1 + (COUNTED_MAX if keyed_by else min(limit, COUNTED_MAX))


def one(policy: Policy, *, now: datetime) -> PolicyOut:
    """Convert one policy, as `changes.find` loads it."""
    return all_of([policy], now=now)[0]


def _out_all(rows: Sequence[Policy], held: Mapping[int, int], now: datetime) -> list[PolicyOut]:
    by = "bucket__policy_id"
    waits = PolicyWait.objects.waiting().filter(**{f"{by}__in": [row.pk for row in rows]})
    lines = waits.order_by().values_list(by).annotate(number=Count("pk"), first=Min("since"))
    line_of = {id: (number, first) for id, number, first in lines}
    return [_out(row, held.get(row.pk, 0), *line_of.get(row.pk, (0, now)), now) for row in rows]


def _out(policy: Policy, held: int, waiting: int, since: datetime, now: datetime) -> PolicyOut:
    copied = {name: getattr(policy, name) for name in COPIED}
    return PolicyOut(
        **copied,
        held=held,
        waiting=waiting,
        oldest_wait_seconds=max(0.0, (now - since).total_seconds()),
        pack=policy.pack.name if policy.pack else None,
    )


COPIED = (
    "ref", "description", "state", "enabled", "kind", "scope", "target", "limit",
    "window_seconds", "period", "timezone", "keyed_by", "on_exceed", "text", "created_at",
    "updated_at",
)  # fmt: skip


def buckets(rows: Sequence[PolicyBucket], *, now: datetime) -> list[BucketOut]:
    """Convert buckets of one policy, each loaded with it."""
    places = figures.places_of(rows, now=now)
    waits = PolicyWait.objects.waiting().filter(bucket__in=[row.pk for row in rows])
    lines = waits.order_by().values("bucket_id")
    lines = lines.annotate(number=Count("pk"), first=Min("execution__next_retry_at"))
    line_of = {line["bucket_id"]: line for line in lines}
    return [
        BucketOut(
            id=row.pk,
            key=row.key_shown,
            taken=max(0, places[row.pk].counted),
            free=places[row.pk].free,
            waiting=line_of[row.pk]["number"] if row.pk in line_of else 0,
            next_due_at=line_of[row.pk]["first"] if row.pk in line_of else None,
            used_at=row.used_at,
        )
        for row in rows
    ]


# --- as facts ------------------------------------------------------------------------------------


def about(policy: PolicyOut) -> str:
    """The work that a policy limits, in words."""
    if policy.scope == Policy.Scope.GLOBAL:
        concerned = "everything"
    elif policy.scope == Policy.Scope.IDENTITY:
        concerned = f"what {policy.target} requests"
    else:
        concerned = f"the {policy.scope} {policy.target}"
    return f"{concerned}, each {' and '.join(policy.keyed_by)}" if policy.keyed_by else concerned


COUNTED = ("Held", "Waiting", "Oldest")


def situation(policy: PolicyOut) -> list[Fact]:
    """The facts of a policy: what it says, and how much of it is taken."""
    return said(
        [
            ("Policy", policy.ref),
            ("Description", policy.description),
            ("State", State(policy.state, KINDS)),
            ("Limit", policy.text),
            ("Time zone", policy.timezone if policy.period else None),
            ("Of", about(policy)),
            ("What exceeds it", "waits" if policy.on_exceed == "wait" else "fails"),
            ("Held", policy.held if policy.kind == Policy.Kind.CONCURRENCY else None),
            ("Waiting", policy.waiting),
            ("Oldest", words.span(policy.oldest_wait_seconds) if policy.waiting else None),
            ("Pack", policy.pack),
            ("Changed", At(policy.updated_at)),
        ]
    )


def definition(policy: Policy) -> list[Fact]:
    """The facts of a policy, without what is taken of it: needs no query."""
    uncounted = _out(policy, 0, 0, policy.updated_at, policy.updated_at)
    return [fact for fact in situation(uncounted) if fact[0] not in COUNTED]


def of_execution(execution: Execution) -> list[Fact]:
    """The facts of the policy that an execution waits for, for its page."""
    if execution.is_terminal:
        return []
    waits = PolicyWait.objects.waiting().select_related("bucket__policy")
    wait = waits.filter(execution=execution.pk).first()
    if wait is None:
        return []
    policy, key = wait.bucket.policy, wait.bucket.key_shown
    note = f"{policy.text}, for {key}" if key else policy.text
    ahead = wait.ahead.count()
    return said(
        [
            ("Waits for the policy", Link(policy, policy.ref, note)),
            ("Before it in line", ahead),
            ("Waits for it since", At(wait.since)),
            ("Looked at again", At(execution.next_retry_at) if execution.next_retry_at else None),
        ]
    )
