"""The pulse: once a second, while somebody listens, it looks at what changed since.

As many statements for one tab as for a thousand: those of the notifications' reader, which follows
histories and the journal, and three more. It asks no process to publish anything.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Any

import structlog
from django.db import DatabaseError, InterfaceError, close_old_connections, connections

from orchestrator.console import kept
from orchestrator.console.live.topics import CLOCK, EXECUTION, PRESENCE, TASK
from orchestrator.core import clock, presence
from orchestrator.core.models import Execution, Worker
from orchestrator.notifications.reading import Reader

log = structlog.get_logger(__name__)

SECONDS = 1.0
CLOCK_EVERY = 5
"""Beats."""
READ_AGAIN = (
    ({PRESENCE}, kept.LIVES),
    ({EXECUTION, TASK}, kept.OPEN_NOW),
    ({EXECUTION}, kept.RECENT),
)
"""What is kept for everybody, after the topics that it is about."""


class Pulse(threading.Thread):
    """Beats until nobody `is_wanted`, or until the database fails: then it calls `lost`."""

    def __init__(
        self,
        *,
        publish: Callable[[Collection[str]], None],
        is_wanted: Callable[[], bool],
        lost: Callable[[], None],
    ) -> None:
        super().__init__(name="muster-pulse", daemon=True)
        self.publish, self.is_wanted, self.lost = publish, is_wanted, lost
        self.stopping = threading.Event()
        self._reader = Reader()
        self._beats = 0
        self._known: dict[str, Any] = {}

    def run(self) -> None:
        try:
            close_old_connections()
            self._reader.begin()
            self._slow_changes()
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
        """The topics that moved since the last beat."""
        moved = self._slow_changes()
        for entity, id in self._reader.changed():
            moved |= {entity, f"{entity}:{id}"}
        self._beats += 1
        if self._beats % CLOCK_EVERY == 0:
            moved.add(CLOCK)
        # pages ask again when they are told, and all of them need what is there now
        for topics, name in READ_AGAIN:
            if moved & topics:
                kept.forget(name)
        if moved:
            kept.forget(kept.ANSWERS)
        return moved

    def _slow_changes(self) -> set[str]:
        """What no history tells: acceptances, and who has fallen silent."""
        seen = {EXECUTION: _newest_execution(), PRESENCE: _who_is_up()}
        moved = {topic for topic, state in seen.items() if self._known.get(topic) != state}
        self._known = seen
        return moved


def _newest_execution() -> Any:
    return Execution.objects.order_by("-pk").values_list("pk", flat=True).first()


def _who_is_up() -> Any:
    now = clock.now()
    workers = Worker.objects.known().only("heartbeat_at", "gone_at", "retired_at")
    fresh = [(each.pk, each.heartbeat_state(now)) for each in workers.order_by("pk")]
    services = [(each.kind, each.name, each.host, each.is_alive(now))
                for each in presence.lives(now)]  # fmt: skip
    return fresh, sorted(services)
