"""Policies: what is limited, how much of it is taken now, and who waits."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpRequest

from orchestrator.console import access, draw, journal, paging, switches
from orchestrator.console.access import Context
from orchestrator.console.look import Look
from orchestrator.core import words
from orchestrator.core.models import Execution
from orchestrator.core.words import Kind
from orchestrator.policies import changes
from orchestrator.policies.models import Policy, PolicyBucket, PolicyWait
from orchestrator.policies.shown import policies as shown
from orchestrator.policies.shown.policies import PolicyOut
from orchestrator.policies.states import KINDS

BUCKETS = 50
WAITS = 50


@dataclass(frozen=True)
class Row:
    """A policy as lists show it."""

    out: PolicyOut

    @property
    def kind(self) -> Kind:
        return KINDS.get(self.out.state, Kind.PLAIN)

    @property
    def about(self) -> str:
        return shown.about(self.out)

    @property
    def held(self) -> str:
        if self.out.kind != Policy.Kind.CONCURRENCY:
            return ""
        most = shown.most_held(self.out.limit, self.out.keyed_by)
        return f"more than {most - 1}" if self.out.held >= most else f"{self.out.held}"

    @property
    def share(self) -> int | None:
        """The percentage that is held, of one that has a single bucket."""
        if self.out.kind != Policy.Kind.CONCURRENCY or self.out.keyed_by:
            return None
        return min(100, 100 * self.out.held // self.out.limit)

    @property
    def oldest(self) -> str:
        return words.span(self.out.oldest_wait_seconds) if self.out.waiting else ""


@dataclass(frozen=True)
class Waiting:
    """An execution that waits for a policy, and where it stands in line."""

    wait: PolicyWait
    execution: Execution | None
    since: str


@access.page("policies", needs="policies.read", topics="policy,execution,clock")
def show_list(look: Look, request: HttpRequest) -> Context:
    """Policies by name, each with what is taken of it."""
    visible = Policy.objects.visible_to(look.user).in_use().select_related("pack")
    listed = paging.by_name(request, visible)
    return {
        "title": "Policies",
        "here": "policies",
        "listed": listed,
        "rows": [Row(out) for out in shown.listed(listed.rows, now=look.now)],
    }


@access.page("policy", needs="policies.read", topics="policy,execution,clock")
def show(look: Look, request: HttpRequest, ref: str) -> Context:
    """A policy: what it says, what each value of its key has taken, and who waits."""
    policy = changes.find(ref)
    rows = PolicyBucket.objects.filter(policy=policy).select_related("policy")
    buckets = shown.buckets(list(rows.order_by("-used_at")[:BUCKETS]), now=look.now)
    waiting = _waiting(look, policy)
    dialogs = switches.of_policy(policy, look)
    return {
        "title": policy.ref,
        "here": "policies",
        "policy": policy,
        "kind": KINDS.get(policy.state, Kind.PLAIN),
        "situation": draw.facts(shown.definition(policy), seen_by=look.user),
        "buckets": buckets,
        "buckets_max": BUCKETS if len(buckets) == BUCKETS else 0,
        "waiting": waiting[:WAITS],
        "is_more_waiting": len(waiting) > WAITS,
        "waits_max": WAITS,
        "done": journal.lines(policy),
        "dialogs": dialogs.allowed,
        "orders": dialogs.useful,
    }


def _waiting(look: Look, policy: Policy) -> list[Waiting]:
    """Those who wait, in the order of their lines; of executions that the user may not see, only
    that they wait."""
    rows = PolicyWait.objects.waiting().filter(bucket__policy=policy)
    rows = rows.select_related("bucket", "execution").defer(
        "execution__parameters", "execution__result"
    )
    found = list(rows.order_by("bucket_id", "-priority", "execution_id")[: WAITS + 1])
    return [
        Waiting(
            each,
            each.execution if look.may("executions.read", each.execution.place) else None,
            words.span((look.now - each.since).total_seconds()),
        )
        for each in found
    ]
