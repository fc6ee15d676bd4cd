"""Filters: which notifications a client wants.

A client has several; it gets what matches any of them. The values of one kind in a filter are
alternatives, and all kinds must hold.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from orchestrator.core import frame
from orchestrator.core.errors import MusterError
from orchestrator.notifications.notification import Notification

MOST = 20
LONGEST = 200
TYPE = re.compile(r"[a-z_*]+(\.[a-z_*]+)?")

Key = tuple[str, ...]
"""Under which a filter is found by a notification: the fewer match it, the better."""


class WrongFilter(MusterError):
    """No notification can match this filter."""


@dataclass(frozen=True)
class Filter:
    """The conditions that a notification must meet; nothing that is empty is asked."""

    types: tuple[str, ...] = ()
    """Patterns such as `execution.*`."""
    entities: tuple[str, ...] = ()
    """`execution`, or `execution:ID`."""
    packs: tuple[str, ...] = ()
    """Patterns such as `billing*`."""
    owners: tuple[str, ...] = ()

    @property
    def number(self) -> int:
        """The number of filters that it counts as: one for each of its values."""
        return max(1, sum(map(len, (self.types, self.entities, self.packs, self.owners))))

    def matches(self, one: Notification) -> bool:
        return (
            (not self.types or any(_is_like(one.type, each) for each in self.types))
            and (not self.entities or _is_entity(one, self.entities))
            and (not self.packs or any(_is_like(one.pack, each) for each in self.packs))
            and (not self.owners or one.owner in self.owners)
        )

    def found_under(self) -> Iterator[Key]:
        """The keys under which to put it, so that notifications which cannot match do not ask
        it."""
        if self.entities:
            yield from (("entity", *each.split(":", 1)) for each in self.entities)
        elif self.owners:
            yield from (("owner", each) for each in self.owners)
        elif self.types and not any("*" in each.partition(".")[0] for each in self.types):
            yield from (("entity", entity) for entity in {t.partition(".")[0] for t in self.types})
        else:
            yield ("all",)


def keys_of(one: Notification) -> tuple[Key, ...]:
    """Under which keys filters are that may match."""
    return (
        ("entity", one.entity, one.id),
        ("entity", one.entity),
        ("owner", one.owner),
        ("all",),
    )


def _is_like(value: str, pattern: str) -> bool:
    if "*" not in pattern:
        return value == pattern
    if pattern.endswith("*") and pattern.count("*") == 1:
        return value.startswith(pattern[:-1])
    return fnmatch.fnmatchcase(value, pattern)


def _is_entity(one: Notification, wanted: Sequence[str]) -> bool:
    return one.entity in wanted or f"{one.entity}:{one.id}" in wanted


# --- as they are written -------------------------------------------------------------------------


def of_query(
    types: Sequence[str], entities: Sequence[str], packs: Sequence[str], owners: Sequence[str]
) -> Filter:
    """The filter of a query: `type=inquiry.*&entity=execution:ID&pack=x`. Raises WrongFilter."""
    made = Filter(tuple(types), tuple(entities), tuple(packs), tuple(owners))
    for each in made.types:
        _check_type(each)
    for each in made.entities:
        _check_entity(each)
    for each in (*made.packs, *made.owners):
        _check_length(each)
    if made.number > MOST:
        raise WrongFilter(f"Expected at most {MOST} filters, found {made.number}")
    return made


FORMS = "all, entity_type:T, entity:T:ID, user:NAME, notification_type:T, pack:NAME"


def of_text(text: str) -> Filter:
    """The filter of a subscription: one of FORMS. Raises WrongFilter."""
    kind, _, value = text.partition(":")
    if text == "all":
        return Filter()
    if kind == "entity_type" and ":" not in value:
        return of_query((), (value,), (), ())
    if kind == "entity" and ":" in value:
        return of_query((), (value,), (), ())
    if kind == "notification_type":
        return of_query((value,), (), (), ())
    if kind == "user" and value:
        return of_query((), (), (), (value,))
    if kind == "pack" and value:
        return of_query((), (), (value,), ())
    raise WrongFilter(f"Expected one of {FORMS}; found {text!r:.80}")


def _check_type(text: str) -> None:
    _check_length(text)
    if not TYPE.fullmatch(text):
        raise WrongFilter(f"type: expected such as execution.failed or execution.*, found {text!r}")
    entity = text.partition(".")[0]
    if "*" not in entity:
        _check_known(entity)


def _check_entity(text: str) -> None:
    _check_length(text)
    entity, separator, id = text.partition(":")
    _check_known(entity)
    if separator and not id:
        raise WrongFilter(f"entity: expected such as {entity}:ID, found {text!r}")


def _check_known(entity: str) -> None:
    if entity not in entities():
        known = ", ".join(sorted(entities()))
        raise WrongFilter(f"entity: expected one of {known}; found {entity!r:.80}")


def _check_length(text: str) -> None:
    if not 0 < len(text) <= LONGEST:
        raise WrongFilter(f"Expected 1 to {LONGEST} characters, found {len(text)}")


@cache
def entities() -> frozenset[str]:
    """All that can change, as the installed apps say."""
    return frozenset(feed.entity for feed in frame.collect(lambda app: app.feeds))
