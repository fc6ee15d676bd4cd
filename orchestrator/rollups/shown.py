"""A cause of failures as people see it: all faces render this."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import cast

from django.db.models import QuerySet, Sum

from orchestrator.core import authority
from orchestrator.core.authority import Principal
from orchestrator.core.reasons import Reason
from orchestrator.core.redaction import redacted_text
from orchestrator.rollups.models import QUARTER, Failure, FailureGroup
from orchestrator.rollups.spans import start_of

LOOKED_AT = 2_000
"""Failures, the newest ones, whose workers are named."""


@dataclass(frozen=True)
class Cause:
    """A group, and how often it occurred in a time."""

    group: FailureGroup
    count: int
    since: datetime
    title: str

    @property
    def is_new(self) -> bool:
        """True if it did not occur before that time."""
        return self.group.first >= self.since


def since(now: datetime, length: timedelta) -> datetime:
    """The beginning of a time before now of which causes are counted: of a quarter of an hour."""
    return start_of(now - length, QUARTER)


def most_frequent(
    *, since: datetime, most: int, seen_by: Principal, action_ref: str = ""
) -> list[tuple[FailureGroup, int]]:
    """The causes that failed most often since then, and how often, of those that the caller may
    see."""
    groups = FailureGroup.objects.visible_to(seen_by)
    if action_ref:
        groups = groups.filter(action_ref=action_ref)
    occurred = groups.filter(counts__start__gte=since).annotate(n=Sum("counts__count"))
    return [(group, group.n) for group in occurred.order_by("-n", "-pk")[:most]]


def described(
    found: Iterable[tuple[FailureGroup, int]], *, since: datetime, seen_by: Principal
) -> list[Cause]:
    """Causes as this caller may see them."""
    return [Cause(group, n, since, title(group, seen_by=seen_by)) for group, n in found]


def title(group: FailureGroup, *, seen_by: Principal) -> str:
    """The pattern of its messages, or the sentence of its reason if they had none. Names that mark
    secrets may have come since it was stored."""
    if not group.sample:
        return sentence(group.reason)
    said = authority.payload(redacted_text(group.sample), of=group.place, seen_by=seen_by)
    return str(said)


def sentence(reason: str) -> str:
    """The reason in words."""
    return Reason(reason).text if reason in Reason.__members__.values() else reason


def failures(group: FailureGroup, *, since: datetime | None = None) -> QuerySet[Failure]:
    """The failures of this cause, since a time; the newest execution first. As many as are counted
    since then, unless they are pruned. An execution may be gone."""
    rows = Failure.objects.filter(group=group).order_by("-execution_id")
    return rows if since is None else rows.filter(at__gte=since)


def workers(group_ids: Sequence[int], *, since: datetime) -> dict[int, dict[int, int]]:
    """On which workers these causes occurred and how often, the most frequent first, by the id of
    the group and that of the worker: of the newest failures since then."""
    rows = Failure.objects.filter(group__in=group_ids, at__gte=since, worker_id__isnull=False)
    newest = rows.order_by("-at").values_list("group_id", "worker_id")[:LOOKED_AT]
    found: dict[int, Counter[int]] = {id: Counter() for id in group_ids}
    for id, worker_id in newest:
        found[id][cast("int", worker_id)] += 1
    return {id: dict(counted.most_common()) for id, counted in found.items()}
