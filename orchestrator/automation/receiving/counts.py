"""The outcomes of deliveries, counted in memory and written once a second: a stranger who sends a
thousand deliveries causes one statement."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import structlog
from django.db import Error as DatabaseError
from django.db import InterfaceError, OperationalError, connections, transaction
from django.db.models import F

from orchestrator.automation.hooks.deliveries import Outcome
from orchestrator.automation.metrics import DELIVERIES
from orchestrator.automation.models import DeliveryCount, Webhook

log = structlog.get_logger(__name__)

PAUSE_SECONDS = 1.0
IDLE_SECONDS = 10.0
"""Without a delivery for so long, the thread gives its connection back."""


@dataclass
class Gathered:
    """The deliveries of one hook with one outcome since they were last written."""

    total: int = 0
    last_at: datetime | None = None
    last_detail: str = ""
    last_address: str = ""


@dataclass
class Batch:
    """The counts that are to be written next."""

    of_hooks: dict[tuple[UUID, Outcome], Gathered] = field(default_factory=dict)
    of_all: Counter[str] = field(default_factory=Counter)


class Counts:
    """Gathers, and has a thread write. What was gathered in the last second is lost with the
    process: these are figures for people, and no part of the promise."""

    def __init__(self) -> None:
        self._batch = Batch()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()

    def note(
        self,
        outcome: Outcome,
        *,
        hook: UUID | None = None,
        detail: str = "",
        address: str = "",
        now: datetime,
    ) -> None:
        """Count one. Without a hook, it counts in the metric only."""
        with self._lock:
            self._batch.of_all[outcome.value] += 1
            if hook is not None:
                gathered = self._batch.of_hooks.setdefault((hook, outcome), Gathered())
                gathered.total += 1
                gathered.last_at, gathered.last_detail = now, detail
                gathered.last_address = address
        self._soon()

    def write(self) -> None:
        """Write what was gathered. What cannot be written counts the next time."""
        with self._lock:
            batch, self._batch = self._batch, Batch()
        if not batch.of_all:
            return
        try:
            _write(batch)
        except DatabaseError as error:
            log.warning("deliveries not counted", error=repr(error))
            if isinstance(error, OperationalError | InterfaceError):  # it is away, and comes back
                self._take_back(batch)
                self._wake.set()
            connections.close_all()

    def _take_back(self, batch: Batch) -> None:
        with self._lock:
            self._batch.of_all.update(batch.of_all)
            for key, gathered in batch.of_hooks.items():
                newer = self._batch.of_hooks.setdefault(key, gathered)
                if newer is not gathered:
                    newer.total += gathered.total

    def _soon(self) -> None:
        """Have the thread write within a second; it is started by the first delivery."""
        self._wake.set()
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    name = "muster-deliveries"
                    self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                    self._thread.start()

    def _run(self) -> None:
        while True:
            if not self._wake.wait(IDLE_SECONDS):
                connections.close_all()
                self._wake.wait()
            self._wake.clear()
            self.write()
            time.sleep(PAUSE_SECONDS)


counts = Counts()


def _write(batch: Batch) -> None:
    with transaction.atomic():
        DELIVERIES.add(batch.of_all)
        named = {hook for hook, _ in batch.of_hooks}
        present = set(Webhook.objects.filter(pk__in=named).values_list("pk", flat=True))
        # in one order: two processes that add to the same rows cannot deadlock
        for hook, outcome in sorted(batch.of_hooks):
            if hook in present:  # it may have been closed meanwhile
                _add(hook, outcome, batch.of_hooks[hook, outcome])


def _add(hook: UUID, outcome: Outcome, gathered: Gathered) -> None:
    values: dict[str, Any] = {
        "last_at": gathered.last_at,
        "last_detail": _fitted(gathered.last_detail, 200),
        "last_address": _fitted(gathered.last_address, 45),
    }
    rows = DeliveryCount.objects.filter(webhook=hook, outcome=outcome.value)
    if not rows.update(total=F("total") + gathered.total, **values):
        DeliveryCount.objects.bulk_create(
            [DeliveryCount(webhook_id=hook, outcome=outcome.value, **values)], ignore_conflicts=True
        )
        rows.update(total=F("total") + gathered.total)


def _fitted(text: str, longest: int) -> str:
    """The text as its column takes it: strangers choose a part of it."""
    return "".join(c if c.isprintable() else "?" for c in text[:longest])
