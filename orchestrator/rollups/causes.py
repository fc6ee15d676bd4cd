"""Causes of failures: executions of one action that failed for one reason, with messages that are
the same but for ids, numbers and names.

Of a message only its pattern is kept, made after its secrets were removed as lists remove them.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db.models import Count

from orchestrator.core.models import Execution, ExecutionEvent
from orchestrator.core.redaction import redacted_text
from orchestrator.core.shown import executions as shown
from orchestrator.core.states import ExecutionStatus
from orchestrator.rollups import adding, marks, patterns
from orchestrator.rollups.adding import Sums
from orchestrator.rollups.models import (
    QUARTER,
    Failure,
    FailureCount,
    FailureGroup,
)
from orchestrator.rollups.spans import start_of

NAME = "causes"
AT_ONCE = 5_000
"""Events of one transaction."""

FAILED = (ExecutionStatus.FAILED, ExecutionStatus.TIMEOUT, ExecutionStatus.ABANDONED)
"""The statuses that are not as they should be. A cancel is somebody's wish."""

MOST_OF_AN_ACTION = 200
"""Patterns that an action has for one reason. More of them are no patterns: its messages differ in
words that mean nothing to us."""

OTHERS = "(other messages)"

GROUPS = Sums(
    FailureGroup,
    keys=("digest",),
    added=("count",),
    least=("first",),
    greatest=("last",),
    kept=("action_ref", "reason", "sample"),
)
COUNTS = Sums(FailureCount, keys=("start", "group"), added=("count",))


class Cause(NamedTuple):
    """The values that the failures of a group have in common."""

    action_ref: str
    reason: str
    pattern: str

    @property
    def digest(self) -> str:
        return hashlib.sha256("\0".join(self).encode("utf-8", "replace")).hexdigest()

    @property
    def without_pattern(self) -> Cause:
        return self._replace(pattern=OTHERS)


@dataclass
class Found:
    """The failures of one cause among those that were read."""

    ends: list[tuple[UUID, int | None, datetime]] = field(default_factory=list)

    @property
    def times(self) -> list[datetime]:
        return [at for *_, at in self.ends]


def follow(*, now: datetime) -> int:
    """Read what failed since the last run; returns how many ids of the history that were."""
    return marks.follow(NAME, take, at_once=AT_ONCE, now=now)


def take(after: int, last: int) -> None:
    """Add the failures in this range of ids of the history."""
    found = _found(after, last)
    if not found:
        return
    adding.add(GROUPS, [_group(cause, each) for cause, each in found.items()])
    digests = {cause.digest: cause for cause in found}
    known = FailureGroup.objects.filter(digest__in=digests).values_list("digest", "pk")
    ids = {digests[digest]: pk for digest, pk in known}
    adding.add(COUNTS, list(_counts(found, ids)))
    Failure.objects.bulk_create(
        Failure(execution_id=id, group_id=ids[cause], worker_id=worker_id, at=at)
        for cause, each in found.items()
        for id, worker_id, at in each.ends
    )


def _found(after: int, last: int) -> dict[Cause, Found]:
    events = ExecutionEvent.objects.filter(pk__gt=after, pk__lte=last, to_status__in=FAILED)
    ended = dict(events.order_by().values_list("execution_id", "at"))
    rows = Execution.objects.filter(pk__in=ended).order_by()
    failed = list(rows.only("pk", "action_ref", "reason", "worker_id"))
    messages = shown.messages_without_secrets(failed)
    causes = {
        each: Cause(each.action_ref, each.reason, patterns.of(redacted_text(message)))
        for each in failed
        for message in [messages.get(each.pk, "")]
    }
    allowed = _allowed(set(causes.values()))
    found: dict[Cause, Found] = {}
    for execution, cause in causes.items():
        ends = found.setdefault(allowed[cause], Found()).ends
        ends.append((execution.pk, execution.worker_id, ended[execution.pk]))
    return found


def _allowed(causes: Collection[Cause]) -> Mapping[Cause, Cause]:
    """Each cause as it is kept: some of them among the others of their action."""
    digests = {cause.digest: cause for cause in causes}
    known = set(FailureGroup.objects.filter(digest__in=digests).values_list("digest", flat=True))
    new = sorted(cause for digest, cause in digests.items() if digest not in known)
    room = _room(new)
    allowed = {cause: cause for cause in causes}
    for cause in new:
        place = cause.action_ref, cause.reason
        room[place] -= 1
        if room[place] < 0:
            allowed[cause] = cause.without_pattern
    return allowed


def _room(causes: Sequence[Cause]) -> Counter[tuple[str, str]]:
    """The number of causes that there may still be, by action and reason."""
    places = {(cause.action_ref, cause.reason) for cause in causes}
    room = Counter(dict.fromkeys(places, MOST_OF_AN_ACTION))
    if places:
        actions = {action_ref for action_ref, _ in places}
        rows = FailureGroup.objects.filter(action_ref__in=actions).order_by()
        known = rows.values_list("action_ref", "reason").annotate(n=Count("pk"))
        room.subtract({(action, reason): n for action, reason, n in known})
    return room


def _group(cause: Cause, found: Found) -> dict[str, object]:
    return {
        "digest": cause.digest,
        "action_ref": cause.action_ref,
        "reason": cause.reason,
        "sample": cause.pattern,
        "count": len(found.ends),
        "first": min(found.times),
        "last": max(found.times),
    }


def _counts(found: Mapping[Cause, Found], ids: Mapping[Cause, int]) -> Iterable[dict[str, object]]:
    for cause, each in found.items():
        starts = Counter(start_of(at, QUARTER) for at in each.times)
        for start, number in starts.items():
            yield {"start": start, "group": ids[cause], "count": number}
