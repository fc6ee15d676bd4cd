"""Reading what changed: histories and the journal from a mark on, other rows by their ids.

A row with a lower id may be committed after one with a higher id. So ids that are missing are
looked for again until they come, or until no transaction can be open that took them.

What is read counts as read when all of it is understood: an error leaves it for the next time.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, cast
from uuid import UUID

from django.apps import apps
from django.db import models
from django.db.models import QuerySet

from orchestrator.core import frame
from orchestrator.core.frame import Feed
from orchestrator.core.news import About
from orchestrator.notifications.models import Change
from orchestrator.notifications.notification import Notification

MOST_AT_ONCE = 2_000
MISSING_SECONDS = 30.0
MOST_MISSING = 1_000
LOOK_FOR_MISSING_SECONDS = 0.25


class Row(NamedTuple):
    """One row of a history, or of the journal."""

    number: int
    id: Any
    """The id of what changed; None: something that is not told."""
    state: str
    at: datetime


class Mark:
    """The position up to which a table with rising ids is read."""

    def __init__(self) -> None:
        self.read_id: int | None = None
        self.missing: dict[int, float] = {}
        """Since when, by id."""
        self.looked_at = 0.0
        self.has_dropped = False
        """Ids are looked for no more, as too many were missing."""

    def begin(self, newest: Sequence[int]) -> None:
        """Begin after the newest of these ids, the last `MOST_MISSING` of a table. Those that are
        not among them may be committed later."""
        self.read_id = max(newest, default=0)
        first = max(1, self.read_id - MOST_MISSING + 1)
        lacking = set(range(first, self.read_id)).difference(newest)
        self.missing = dict.fromkeys(sorted(lacking), time.monotonic())

    def wanted(self) -> list[int]:
        """The missing ids, if it is time to look for them again."""
        now = time.monotonic()
        if not self.missing or now - self.looked_at < LOOK_FOR_MISSING_SECONDS:
            return []
        self.looked_at = now
        self.missing = {id: at for id, at in self.missing.items() if now - at < MISSING_SECONDS}
        return list(self.missing)

    def note(self, ids: Iterable[int]) -> None:
        """These were read, in rising order."""
        assert self.read_id is not None
        now = time.monotonic()
        for id in ids:
            if id <= self.read_id:
                self.missing.pop(id, None)
                continue
            # of a long gap, which many inserts at once leave behind if they are undone, the end
            first = max(self.read_id + 1, id - MOST_MISSING)
            # of an empty table nobody knows where its ids begin
            self.has_dropped |= first > self.read_id + 1 and self.read_id > 0
            for lacking in range(first, id):
                self.missing[lacking] = now
            self.read_id = id
        while len(self.missing) > MOST_MISSING:
            del self.missing[next(iter(self.missing))]
            self.has_dropped = True


class Reader:
    """Reads all feeds of this installation, each from where it was read the last time."""

    def __init__(self) -> None:
        self.feeds = {feed.entity: feed for feed in frame.collect(lambda app: app.feeds)}
        self._histories = {name: Mark() for name, feed in self.feeds.items() if feed.history}
        self._journal = Mark()
        self.has_more = False
        """The last read took as many rows of a table as one read takes: more may be there."""

    @property
    def histories(self) -> Collection[str]:
        return self._histories.keys()

    @property
    def is_lacking(self) -> bool:
        """True while ids are missing: their transactions may be under way."""
        return any(mark.missing for mark in self._marks)

    @property
    def _marks(self) -> Sequence[Mark]:
        return (self._journal, *self._histories.values())

    def take_dropped(self) -> bool:
        """Return True if ids were given up since the last call, so that something may be missed."""
        has_dropped = any(mark.has_dropped for mark in self._marks)
        for mark in self._marks:
            mark.has_dropped = False
        return has_dropped

    def begin(self) -> None:
        """Begin with what changes from now on."""
        self._journal.begin(_newest(Change.objects.all()))
        for name, mark in self._histories.items():
            mark.begin(_newest(self._history(name)))

    def read(
        self, entities: Collection[str], messages: Iterable[Mapping[str, Any]] = ()
    ) -> list[Notification]:
        """Read what is new in these histories, and in the journal, and what messages list. After an
        error the next call reads the same again."""
        changes = Change.objects.values_list("pk", "key", "verb", "at", "entity")
        rows: list[tuple[Any, ...]] = _fetch(changes, self._journal)
        # first: the acceptance, which only a message tells, comes before what the history says
        told = [*self.of_messages(messages), *self._of_journal(rows)]
        found = [(self._journal, rows)]
        for name in self._histories.keys() & set(entities):
            rows = _fetch(self._history(name), self._histories[name])
            told += self._of_history(self.feeds[name], [Row(*row) for row in rows])
            found.append((self._histories[name], rows))
        for mark, rows in found:
            mark.note(row[0] for row in rows)
        # counted before it is known who is to be woken: most rows of tasks wake nobody
        self.has_more = any(len(rows) >= MOST_AT_ONCE for _, rows in found)
        return told

    def of_messages(self, messages: Iterable[Mapping[str, Any]]) -> list[Notification]:
        """The notifications in messages that list ids: these are in that state."""
        by_entity: dict[str, list[tuple[str, str, datetime]]] = defaultdict(list)
        for message in messages:
            try:
                at, state = datetime.fromisoformat(message["at"]), str(message["state"])
                listed = [(str(id), state, at) for id in message["ids"]]
            except (KeyError, TypeError, ValueError):
                continue  # of another release
            by_entity[message["entity"]] += listed
        return [
            told
            for entity, listed in by_entity.items()
            if entity in self.feeds
            for told in self._of_ids(self.feeds[entity], listed)
        ]

    def _of_ids(
        self, feed: Feed, listed: Sequence[tuple[str, str, datetime]]
    ) -> Iterator[Notification]:
        abouts = _abouts(feed, {id for id, _, _ in listed})
        for id, state, at in listed:
            if about := abouts.get(id):
                yield _notification(feed, about, state, state, at)

    def _history(self, entity: str) -> QuerySet[Any, Any]:
        history = self.feeds[entity].history
        assert history is not None
        return cast("QuerySet[Any, Any]", history.rows())

    def _of_history(self, feed: Feed, rows: Sequence[Row]) -> list[Notification]:
        ids = {row.id for row in rows if row.id is not None}
        abouts: dict[Any, About] = feed.about(ids) if ids else {}
        return [
            _notification(feed, abouts[row.id], row.state, row.state, row.at)
            for row in rows
            if row.id in abouts
        ]

    def _of_journal(self, rows: Sequence[tuple[Any, ...]]) -> list[Notification]:
        by_entity: dict[str, list[Any]] = defaultdict(list)
        for row in rows:
            by_entity[row[4]].append(row)
        told = []
        for entity, of_entity in by_entity.items():
            feed = self.feeds.get(entity)
            if feed is None:
                continue
            if feed.is_named_by_state:
                # each would be told in the state that the row has by now
                of_entity = list({row[1]: row for row in of_entity}.values())
            abouts = _abouts(feed, {row[1] for row in of_entity})
            for _, key, verb, at, _ in of_entity:
                if about := abouts.get(key):
                    name = about.state if feed.is_named_by_state and about.state else verb
                    told.append(_notification(feed, about, name, about.state, at))
        return told


def _newest(rows: QuerySet[Any, Any]) -> list[int]:
    ids = rows.model._default_manager.order_by("-pk").values_list("pk", flat=True)
    return list(ids[:MOST_MISSING])


def _fetch(rows: QuerySet[Any, Any], mark: Mark) -> list[Any]:
    """The rows that came since the mark, and those that were missing then. The caller notes them in
    the mark."""
    if mark.read_id is None:
        mark.begin(_newest(rows))
    fresh = list(rows.filter(pk__gt=mark.read_id).order_by("pk")[:MOST_AT_ONCE])
    wanted = mark.wanted()
    late = list(rows.filter(pk__in=wanted).order_by("pk")) if wanted else []
    return [*late, *fresh]


def _notification(feed: Feed, about: About, name: str, state: str, at: datetime) -> Notification:
    return Notification(
        type=f"{feed.entity}.{name}",
        entity=feed.entity,
        id=about.id,
        place=about.place,
        permission=feed.permission,
        owner=about.owner,
        state=state,
        at=at,
    )


def _abouts(feed: Feed, texts: Collection[str]) -> dict[str, About]:
    """The facts about these rows, by the texts of their ids. A trigger of SQLite writes a UUID
    without dashes. What is no id, as in a message that is not ours, is left out."""
    key = apps.get_model(feed.model)._meta.pk
    ids: dict[str, Any] = {}
    for text in texts:
        try:
            ids[text] = UUID(text) if isinstance(key, models.UUIDField) else int(text)
        except ValueError:
            continue
    abouts = feed.about(list(ids.values())) if ids else {}
    return {text: abouts[id] for text, id in ids.items() if id in abouts}
