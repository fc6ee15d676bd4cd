"""Presence of services: each renews a row of its life, so that a dead or frozen one is seen.

Workers have heartbeats of their own, and sensor services leases. An app that knows services says so
by `MusterApp.services`; `lives` has all of them.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from django.db import DatabaseError, InterfaceError, close_old_connections, connections
from django.db.models import FloatField, QuerySet, Value

from orchestrator.core import clock, database, frame, outages
from orchestrator.core.models import Service

log = outages.get_logger(__name__)

RENEW_SECONDS = 5.0
STOP_SECONDS = 2.0
SILENT_AFTER_SECONDS = 12.0
"""Two renewals, and what a busy machine is late."""
KEPT = timedelta(days=1)
"""Former lives are removed after this time, and not listed after `LISTED`."""
LISTED = timedelta(hours=1)


@dataclass(frozen=True)
class Life:
    """One life of a service, as it was last heard of."""

    kind: str
    name: str
    host: str
    started_at: datetime
    seen_at: datetime
    stopped_at: datetime | None = None
    pid: int | None = None
    silent_after_seconds: float = SILENT_AFTER_SECONDS
    trouble: str = ""
    """The thing that keeps it from its work, if any."""

    def silence(self, now: datetime) -> timedelta:
        return now - self.seen_at

    def is_alive(self, now: datetime) -> bool:
        """Return True if it has said something not long ago, and did not end."""
        is_heard = self.silence(now) <= timedelta(seconds=self.silent_after_seconds)
        return self.stopped_at is None and is_heard

    def is_replaced_by(self, other: Life) -> bool:
        """Return True if the other is what it was restarted as."""
        is_same = (other.kind, other.name) == (self.kind, self.name)
        return is_same and other.started_at > self.seen_at


def lives(now: datetime) -> list[Life]:
    """All that were heard of within the last hour, in one statement."""
    first, *others = (bring(now=now) for bring in frame.collect(lambda app: app.services))
    return [Life(*row) for row in first.union(*others, all=True)]


def columns(rows: QuerySet[Any], **named: Any) -> QuerySet[Any]:
    """The columns that a `Life` has, of rows of services. `named`: expressions for what is no
    column."""
    found: QuerySet[Any] = rows.order_by().annotate(**named)
    return found.values_list(*(each.name for each in fields(Life)))


def silent(known: list[Life], now: datetime) -> list[Life]:
    """Those that fell silent without an end, and were not started again since."""
    candidates = [life for life in known if life.stopped_at is None and not life.is_alive(now)]
    return [life for life in candidates if not any(life.is_replaced_by(other) for other in known)]


def alive(known: list[Life], now: datetime) -> list[Life]:
    """Those that are alive; not one that was killed a moment ago and was started again since. Many
    may have one name: who was due to be heard and was not may be gone."""
    due = timedelta(seconds=RENEW_SECONDS + 1)
    heard = [life for life in known if life.is_alive(now)]
    return [
        life
        for life in heard
        if life.silence(now) <= due or not any(life.is_replaced_by(other) for other in known)
    ]


def troubled(known: list[Life], now: datetime) -> list[Life]:
    """Those that are alive, and do not get on."""
    return [life for life in alive(known, now) if life.trouble]


def of_core(*, now: datetime) -> QuerySet[Any]:
    """Executors, gate services, beats, API processes and notifiers."""
    after = Value(SILENT_AFTER_SECONDS, FloatField())
    return columns(Service.objects.heard_since(now - LISTED), silent_after_seconds=after)


class Presence(threading.Thread):
    """Renews the row of this process's life until `stop`."""

    def __init__(
        self, kind: str, name: str = "", *, trouble: Callable[[], str] = lambda: ""
    ) -> None:
        """`trouble`: the function that returns what keeps this process from its work."""
        super().__init__(name="muster-presence", daemon=True)
        self.trouble = trouble
        self.service = Service(
            kind=kind, name=name or kind, host=socket.gethostname(), pid=os.getpid()
        )
        self.stopping = threading.Event()

    def run(self) -> None:
        while True:
            self._try(self.renew)
            if self.stopping.wait(RENEW_SECONDS):
                break
        self._try(self.end)
        connections.close_all()

    def stop(self) -> None:
        """End this life; a process that is killed leaves a silent one."""
        self.stopping.set()
        if self.is_alive():
            self.join(timeout=STOP_SECONDS)

    def renew(self, now: datetime) -> None:
        """Say that it lives. A row that is new, or was removed as it was away for long, is
        inserted."""
        self.service.trouble = trouble = self.trouble()
        same = Service.objects.filter(pk=self.service.pk)
        if not same.update(seen_at=now, stopped_at=None, trouble=trouble):
            self.service.started_at = self.service.seen_at = now
            self.service.save(force_insert=True)
            if self.service.kind == Service.Kind.EXECUTOR:
                Service.objects.filter(seen_at__lt=now - KEPT).delete()

    def end(self, now: datetime) -> None:
        Service.objects.filter(pk=self.service.pk).update(stopped_at=now)

    def _try(self, verb: Callable[[datetime], None]) -> None:
        try:
            close_old_connections()
            verb(clock.now())
        except (DatabaseError, InterfaceError) as error:
            if database.is_outage(error):
                log.exception("presence not renewed, trying again")
            else:  # its table may not be made yet
                log.info("presence not renewed, trying again", error=repr(error))
            connections.close_all()


def begin(kind: str, name: str = "", *, trouble: Callable[[], str] = lambda: "") -> Presence:
    """Renew the presence of this process from now on. `trouble`: as for a Presence."""
    presence = Presence(kind, name, trouble=trouble)
    presence.start()
    return presence
