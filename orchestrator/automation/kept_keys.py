"""Keys that a process opens again and again, kept there while they do not change.

Each opening is audited, so it happens once for each version of a key, and not each time that its
value is needed. Whether a key has changed is seen in its row, without opening it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db.models import Q

from orchestrator.access.keys.references import Reference
from orchestrator.access.models import Key
from orchestrator.core import keyholder
from orchestrator.core.keyholder import Wanted

KEPT_SECONDS = 5.0
MOST_KEPT = 1_000

Stamp = frozenset[tuple[Any, ...]]
"""The keys that there are, each with its version: it differs after each change of one."""


@dataclass(frozen=True)
class Opened:
    """Some keys, as they were a moment ago."""

    values: Mapping[str, str]
    """By their references; those that were refused are missing."""
    refusals: Sequence[str]
    stamp: Stamp
    at: float
    """In counted seconds."""

    @property
    def is_fresh(self) -> bool:
        """Return True while nobody needs to look whether they have changed."""
        return time.monotonic() - self.at <= KEPT_SECONDS


class Kept:
    """The keys that this process has opened. From any thread."""

    def __init__(self, wanted: Callable[[str], Wanted]) -> None:
        self._wanted = wanted
        self._known: dict[tuple[str, ...], Opened] = {}
        self._lock = threading.Lock()

    def forget(self) -> None:
        self._known.clear()

    def of(self, references: Sequence[str]) -> Opened:
        """These keys; looked at again if that was long ago, or if there was none of them."""
        known = self._known.get(tuple(references))
        if known is not None and known.values and known.is_fresh:
            return known
        return self._looked_at(references)

    def changed_since(self, before: Opened, references: Sequence[str]) -> Opened | None:
        """The keys as they are; None if none of them has changed."""
        return None if _stamp(references) == before.stamp else self._looked_at(references)

    def _looked_at(self, references: Sequence[str]) -> Opened:
        # one thread opens, and the others find what it has opened
        with self._lock:
            stamp = _stamp(references)
            known = self._known.get(tuple(references))
            if known is None or known.stamp != stamp:
                known = self._open(references, stamp)
            elif known.values:
                known = replace(known, at=time.monotonic())
            elif not known.is_fresh:
                # the ring may have come, which no row says
                known = self._open(references, stamp)
            if len(self._known) >= MOST_KEPT:
                self._known.clear()
            self._known[tuple(references)] = known
            return known

    def _open(self, references: Sequence[str], stamp: Stamp) -> Opened:
        wanted = {each: self._wanted(each) for each in references}
        answers = keyholder.holder().open(list(wanted.values())) if wanted else {}
        opened = {reference: answers[each] for reference, each in wanted.items()}
        return Opened(
            # whoever writes a value with an editor or `echo` ends it with a line break
            values={name: one.value.strip("\r\n") for name, one in opened.items() if one.value},
            refusals=tuple(one.refusal for one in opened.values() if one.refusal),
            stamp=stamp,
            at=time.monotonic(),
        )


def _stamp(references: Iterable[str]) -> Stamp:
    named = Q(pk__in=[])
    for text in references:
        reference = Reference.read(text, user="")
        named |= Q(scope=reference.scope, owner=reference.owner, name=reference.name)
    rows = Key.objects.usable().filter(named)
    return frozenset(rows.values_list("pk", "version", "ring_id"))
