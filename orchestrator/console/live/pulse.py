"""The pulse: once a second, while somebody listens, it looks at what changed since.

As many statements for one tab as for a thousand, and none reads what came: histories have thousands
of new rows a second, and a page has to know only that there are some. Entities without a history
are read from the notifications' journal. It asks no process to publish anything.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any
from uuid import UUID

import structlog
from django.db import DatabaseError, InterfaceError, close_old_connections, connections
from django.db.models import Count, Manager, Max, Model, QuerySet, Sum

from orchestrator.console import kept
from orchestrator.console.live.topics import CLOCK, EXECUTION, PRESENCE, TASK
from orchestrator.core import clock, presence
from orchestrator.core.models import Execution, Worker
from orchestrator.notifications.reading import Reader

log = structlog.get_logger(__name__)

SECONDS = 1.0
CLOCK_EVERY = 5
"""Beats."""
NEWEST = 1_000
"""Rows of a history among which one is found that is committed after rows with higher ids."""
FLOOD = 500
"""Rows that came to a history since the last beat: while it is more, pages are told at every other
beat. Nobody can read what changes so fast, and the pages would take from the work."""
READ_AGAIN = (
    ({PRESENCE}, kept.LIVES),
    ({EXECUTION, TASK}, kept.OPEN_NOW),
    ({EXECUTION}, kept.RECENT),
)
"""The names of what is kept for everybody, after the topics that it is about."""


class Pulse(threading.Thread):
    """Beats until nobody `is_wanted`, or until the database fails: then it calls `lost`."""

    def __init__(
        self,
        *,
        followed: Callable[[], Collection[str]],
        publish: Callable[[Collection[str]], None],
        is_wanted: Callable[[], bool],
        lost: Callable[[], None],
    ) -> None:
        super().__init__(name="muster-pulse", daemon=True)
        self.followed, self.publish = followed, publish
        self.is_wanted, self.lost = is_wanted, lost
        self.stopping = threading.Event()
        self._reader = Reader()
        self._beats = 0
        self._known: dict[str, list[Any]] = {}
        self._highest: dict[str, int] = {}
        """The highest id of each history."""
        self._held_back: set[str] = set()

    def run(self) -> None:
        try:
            close_old_connections()
            self._reader.begin()
            # what tabs follow by now may have moved between their page and this look
            self._take_changes(followed=())
            while not self.stopping.wait(SECONDS) and self.is_wanted():
                self.publish(self.beat())
        except (DatabaseError, InterfaceError) as error:
            log.warning("the console's pages are not kept up", error=repr(error))
            self.lost()
        except Exception:
            # whatever it is: no page may go on saying that it is live
            log.exception("the console's pages are not kept up")
            self.lost()
        finally:
            connections.close_all()

    def beat(self) -> set[str]:
        """The topics of which pages are to be told: they moved."""
        before = self._highest
        moved = self._held_back | self._take_changes(followed=self.followed())
        came = max(self._highest[each] - before.get(each, 0) for each in self._highest)
        for told in self._reader.read(()):
            moved |= {told.entity, f"{told.entity}:{told.id}"}
        self._beats += 1
        if self._beats % CLOCK_EVERY == 0:
            moved.add(CLOCK)
        if came > FLOOD and not self._held_back:
            self._held_back = moved
            return set()
        self._held_back = set()
        # pages ask again when they are told, and all of them need what is there now
        for topics, name in READ_AGAIN:
            if moved & topics:
                kept.forget(name)
        if moved:
            kept.forget(kept.ANSWERS)
        return moved

    def _take_changes(self, *, followed: Collection[str]) -> set[str]:
        """The topics of which something is not as it was at the last call, or was not looked at."""
        self._highest = {}
        seen: dict[str, list[Any]] = defaultdict(list)
        for topic, value in self._looked_at(_ids_by_entity(followed)):
            seen[topic].append(value)
        moved = {topic for topic, values in seen.items() if self._known.get(topic) != values}
        self._known = seen
        return moved

    def _looked_at(self, ids: Mapping[str, Collection[UUID]]) -> Iterator[tuple[str, Any]]:
        """Topics, with a value that changes whenever they move."""
        yield EXECUTION, _newest_execution()
        yield PRESENCE, _who_is_up()
        for entity in self._reader.histories:
            history = self._reader.feeds[entity].history
            assert history is not None
            rows = history.rows().model._default_manager
            self._highest[entity], sum_of_ids = _newest(rows)
            yield entity, sum_of_ids
            for id, number in _rows_by_id(rows, history.key, ids.get(entity, ())):
                yield f"{entity}:{id}", number


def _ids_by_entity(topics: Collection[str]) -> dict[str, set[UUID]]:
    found: dict[str, set[UUID]] = defaultdict(set)
    for topic in topics:
        entity, _, id = topic.partition(":")
        with suppress(ValueError):  # none, or what somebody made up
            found[entity].add(UUID(id))
    return found


def _newest(rows: Manager[Model]) -> tuple[int, int]:
    """The highest id, and the sum of the newest: more with each row that comes, be it one of them
    that is committed late."""
    newest = rows.order_by("-pk")[:NEWEST].aggregate(highest=Max("pk"), sum=Sum("pk"))
    return newest["highest"] or 0, newest["sum"] or 0


def _rows_by_id(rows: Manager[Model], key: str, ids: Collection[UUID]) -> QuerySet[Any, Any]:
    """Histories only grow."""
    found = rows.filter(**{f"{key}__in": ids}).order_by()
    counted: QuerySet[Any, Any] = found.values_list(key).annotate(Count("pk"))
    return counted


def _newest_execution() -> Any:
    return Execution.objects.order_by("-pk").values_list("pk", flat=True).first()


def _who_is_up() -> Any:
    now = clock.now()
    workers = Worker.objects.known().only("heartbeat_at", "gone_at", "retired_at")
    fresh = [(each.pk, each.heartbeat_state(now)) for each in workers.order_by("pk")]
    services = [(each.kind, each.name, each.host, each.is_alive(now), each.trouble)
                for each in presence.lives(now)]  # fmt: skip
    return fresh, sorted(services)
