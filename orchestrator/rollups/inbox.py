"""Pending investigations by cause, the most urgent first, and the end of those of one cause."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, lru_cache

from django.db.models import Value
from django.db.models.functions import Left
from django.utils.crypto import salted_hmac

from orchestrator.core import authority, investigations
from orchestrator.core.authority import Principal
from orchestrator.core.errors import MusterError, NotFound
from orchestrator.core.investigations import TEXT_MAX
from orchestrator.core.models import DLQEntry, InvestigationQueue
from orchestrator.core.models.investigations import AGE_LIMIT
from orchestrator.rollups import patterns

LOOKED_AT = 1_000
"""Of the pending ones, the most urgent so many are grouped."""

CLOSED_AT_ONCE = 100
DETAIL_MAX = 1_000


class UnknownCause(NotFound):
    """No pending investigation has this cause any more."""


class NoteMissing(MusterError):
    """Whoever closes an investigation says why."""


@dataclass
class Cause:
    """Pending investigations of subjects of one name, for one reason, with details of one
    pattern."""

    key: str
    """For addresses. Made with the key of the installation: nobody can guess a detail by it."""
    rows: list[InvestigationQueue] = field(default_factory=list)
    """The most urgent first."""

    @property
    def first(self) -> InvestigationQueue:
        return self.rows[0]

    @property
    def count(self) -> int:
        return len(self.rows)

    @property
    def newest_id(self) -> int:
        return max(row.entry_id for row in self.rows)


@dataclass(frozen=True)
class Inbox:
    """The pending investigations, by cause."""

    causes: Sequence[Cause]

    @cached_property
    def count(self) -> int:
        return sum(each.count for each in self.causes)

    @property
    def is_cut(self) -> bool:
        """True if there may be more than was looked at."""
        return self.count >= LOOKED_AT

    def of(self, key: str) -> Cause:
        """The cause of this key. Raises UnknownCause."""
        for each in self.causes:
            if each.key == key:
                return each
        raise UnknownCause("No pending investigation has this cause, or none has it any more")


@dataclass(frozen=True)
class Closed:
    """The outcome of closing several."""

    closed: int
    refused: Sequence[str]
    """For each entry that is still open, why."""
    left: int
    """Beyond those that are closed at once."""


def read(seen_by: Principal) -> Inbox:
    """The pending investigations that the caller may see, causes in order of their most urgent
    one."""
    rows = InvestigationQueue.objects.visible_to(seen_by).order_by("-priority_score", "entry_id")
    causes: dict[str, Cause] = {}
    for row in rows.defer("detail").annotate(said=Left("detail", Value(DETAIL_MAX)))[:LOOKED_AT]:
        row.detail = row.said
        key = key_of(row)
        causes.setdefault(key, Cause(key)).rows.append(row)
    return Inbox(list(causes.values()))


def key_of(row: InvestigationQueue | DLQEntry) -> str:
    """The key of the cause of an entry."""
    return _key(row.dlq_reason, row.subject_kind, row.subject_name, row.detail[:DETAIL_MAX])


@lru_cache(maxsize=2 * LOOKED_AT)
def _key(reason: str, kind: str, name: str, detail: str) -> str:
    """Kept: the pages of triage ask for those of the same entries again and again."""
    text = "\0".join((reason, kind, name, patterns.of(detail)))
    return salted_hmac("muster.triage", text).hexdigest()[:20]


def score(row: InvestigationQueue) -> tuple[float, float]:
    """The parts of its priority: the weight of its reason with that of its execution, and a point
    for each minute."""
    minutes = min(row.minutes_in_dlq, AGE_LIMIT)
    return row.priority_score - minutes, minutes


def checked_note(text: str) -> str:
    """A note as it is kept. Raises NoteMissing."""
    note = text.strip()
    if not note or len(note) > TEXT_MAX or "\0" in note:
        raise NoteMissing(f"A note of 1 to {TEXT_MAX:,} characters is needed")
    return note


def close(
    rows: Sequence[InvestigationQueue],
    *,
    until_id: int,
    resolution: DLQEntry.Resolution,
    note: str,
    by: Principal,
    read_clock: Callable[[], datetime],
) -> Closed:
    """Close these, each by itself as if it was the only one, at most `CLOSED_AT_ONCE` of them; not
    what was opened after `until_id`, which nobody has looked at. Raises NoteMissing."""
    note = checked_note(note)
    seen = [row for row in rows if row.entry_id <= until_id]
    refused = list(_close_each(seen[:CLOSED_AT_ONCE], resolution, note, by, read_clock))
    done = min(len(seen), CLOSED_AT_ONCE)
    return Closed(done - len(refused), refused, len(seen) - done)


def _close_each(
    rows: Iterable[InvestigationQueue],
    resolution: DLQEntry.Resolution,
    note: str,
    by: Principal,
    read_clock: Callable[[], datetime],
) -> Iterable[str]:
    """Close each; yields why some were not."""
    for row in rows:
        try:
            authority.require(by, "dlq.change", row.place)
            investigations.close(
                row.dlq_entry_uuid, resolution=resolution, note=note, now=read_clock(),
                actor=by.actor,
            )  # fmt: skip
        except MusterError as error:
            yield f"{row.dlq_entry_uuid}: {error}"
