"""The workers: how they come, stay, go, are found missing, and are chosen."""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import F

from orchestrator.errors import MusterError
from orchestrator.models import Execution, Worker

log = structlog.get_logger(__name__)


class UnknownWorker(MusterError):
    """No worker has this id or name."""


class NoWorkerAvailable(MusterError):
    """No active worker can run this action."""


class FleetBusy(MusterError):
    """Every worker that could run this action holds all that it may hold."""


# --- the life of a worker --------------------------------------------------------------------


def enlist(*, name: str, labels: Mapping[str, str] | None = None) -> Worker:
    """The worker of this name, made if it is new. Its id names its queues."""
    worker, _ = Worker.objects.get_or_create(name=name)
    if labels is not None and labels != worker.labels:
        Worker.objects.filter(pk=worker.pk).update(labels=dict(labels))
    return worker


def register(
    *,
    worker_id: int,
    capacity: int,
    runtimes: Iterable[str],
    host: str,
    pid: int,
    version: str,
    now: datetime,
) -> Worker:
    """Begin a new life of a worker: its earlier incarnation is refused from here on.

    Raises UnknownWorker.
    """
    with transaction.atomic():
        registered = Worker.objects.filter(pk=worker_id).update(
            incarnation=F("incarnation") + 1,
            status=Worker.Status.ACTIVE,
            status_reason="",
            capacity=capacity,
            runtimes=sorted(runtimes),
            registered_at=now,
            heartbeat_at=now,
            host=host,
            pid=pid,
            version=version,
        )
        if not registered:
            raise UnknownWorker(f"No worker has the id {worker_id}; `manage.py worker` makes one")
        worker = Worker.objects.get(pk=worker_id)
    log.info("worker registered", worker=worker.name, incarnation=worker.incarnation)
    return worker


def beat(*, worker_id: int, incarnation: int, now: datetime) -> bool:
    """Renew a heartbeat; False tells the worker that it was declared lost or replaced.

    A late heartbeat never undoes what was decided meanwhile: status is compared, not set.
    """
    return bool(
        Worker.objects.filter(pk=worker_id, incarnation=incarnation)
        .exclude(status=Worker.Status.INACTIVE)
        .update(heartbeat_at=now)
    )


def drain(*, worker_id: int, incarnation: int, reason: str) -> bool:
    """Give this worker no more work; it finishes what it runs."""
    return bool(
        Worker.objects.filter(
            pk=worker_id, incarnation=incarnation, status=Worker.Status.ACTIVE
        ).update(status=Worker.Status.DRAINING, status_reason=reason)
    )


def leave(*, worker_id: int, incarnation: int, reason: str) -> bool:
    """End this life of a worker in good order."""
    return bool(
        Worker.objects.filter(pk=worker_id, incarnation=incarnation).update(
            status=Worker.Status.INACTIVE, status_reason=reason
        )
    )


def mark_stale(*, now: datetime) -> list[Worker]:
    """Declare lost every worker that was silent for longer than the staleness window.

    The incarnation is compared: a worker that registered again meanwhile is not touched.
    """
    lost = []
    for worker in Worker.objects.stale(now):
        if (
            Worker.objects.stale(now)
            .filter(pk=worker.pk, incarnation=worker.incarnation)
            .update(status=Worker.Status.INACTIVE, status_reason="heartbeat stale")
        ):
            lost.append(worker)
            log.warning(
                "worker lost",
                worker=worker.name,
                heartbeat_at=worker.heartbeat_at,
            )
    return lost


# --- placement ---------------------------------------------------------------------------------

REFRESH_SECONDS = 1.0


@dataclass(eq=False)
class _Seat:
    """A worker as placement sees it: what it holds, and what it may hold."""

    worker_id: int
    capacity: int
    runtimes: frozenset[str]
    heartbeat_at: datetime
    held: int
    finished_lately: int = 0

    @property
    def window(self) -> int:
        """Twice the slots, so that none falls idle, and what it finished in the last second.

        More would only wait in its queue, with its TTL running, while other workers may fall
        free: a backlog belongs in the database, where no TTL runs.
        """
        return 2 * self.capacity + self.finished_lately

    @property
    def load(self) -> float:
        return self.held / self.window


@dataclass
class Placement:
    """Chooses workers for one executor process.

    It counts what it hands out and what it hears to be finished, and reads the truth from the
    database once a second, so that its cost does not depend on the size of the fleet. With
    several executors the windows are approximate for that second, which costs balance and
    nothing else. Not thread-safe: one thread schedules.
    """

    seats: dict[int, _Seat] = field(default_factory=dict)
    _heaps: dict[str, list[tuple[float, float, _Seat]]] = field(default_factory=dict)
    _read_at: float = -REFRESH_SECONDS
    _finished: dict[int, int] = field(default_factory=dict)

    def refresh(self, *, now: datetime, older_than_seconds: float = REFRESH_SECONDS) -> None:
        """Read the fleet again unless that was done so lately, by default in the last second."""
        age = time.monotonic() - self._read_at
        if age < older_than_seconds:
            return
        held = Execution.objects.load_by_worker()
        self.seats = {
            worker.pk: _Seat(
                worker_id=worker.pk,
                capacity=worker.capacity,
                runtimes=frozenset(worker.runtimes),
                heartbeat_at=worker.heartbeat_at,
                held=held.get(worker.pk, 0),
                # a longer pause between two reads must not look like a faster worker
                finished_lately=int(self._finished.get(worker.pk, 0) / max(1.0, age)),
            )
            for worker in Worker.objects.eligible(now)
            if worker.heartbeat_at is not None
        }
        self._finished.clear()
        self._heaps.clear()
        self._read_at = time.monotonic()

    def expire(self) -> None:
        """Read the fleet anew before the next choice."""
        self._read_at = -REFRESH_SECONDS

    def pick(
        self, *, runtime: str, now: datetime, pinned: int | None = None, avoid: int | None = None
    ) -> int:
        """The id of the worker for one more execution, counted as held from here on.

        A pinned worker is taken as long as it has room, or is down: then its queue's TTL
        decides. `avoid` is passed over where there is another choice.
        Raises NoWorkerAvailable (says what was missing) and FleetBusy.
        """
        if pinned is not None:
            return self._pick_pinned(pinned, runtime, now)
        heap = self._heap(runtime)
        passed_over: list[tuple[float, float, _Seat]] = []
        try:
            while heap:
                load, lot, seat = heapq.heappop(heap)
                if not self._is_fresh(seat, now):
                    continue
                if load != seat.load:  # counted through another runtime's heap meanwhile
                    heapq.heappush(heap, (seat.load, lot, seat))
                    continue
                if seat.worker_id == avoid and not passed_over:
                    passed_over.append((load, lot, seat))
                    continue
                return self._take(heap, seat)
            if passed_over:
                return self._take(heap, passed_over.pop()[2])
        finally:
            for entry in passed_over:
                heapq.heappush(heap, entry)
        raise NoWorkerAvailable(self._what_is_missing(runtime))

    def _pick_pinned(self, worker_id: int, runtime: str, now: datetime) -> int:
        seat = self.seats.get(worker_id)
        if seat is not None and self._is_fresh(seat, now):
            if runtime not in seat.runtimes:
                raise NoWorkerAvailable(
                    f"no workers available: the one asked for does not offer the runtime {runtime} "
                    f"(offered: {', '.join(sorted(seat.runtimes))})"
                )
            if seat.load >= 1:
                raise FleetBusy
            seat.held += 1
        return worker_id

    def _take(self, heap: list[tuple[float, float, _Seat]], seat: _Seat) -> int:
        busy = seat.load >= 1
        if not busy:
            seat.held += 1
        heapq.heappush(heap, (seat.load, random.random(), seat))  # noqa: S311 - breaks ties
        if busy:
            raise FleetBusy
        return seat.worker_id

    def finished(self, worker_id: int) -> None:
        """A worker has ended one execution."""
        self._finished[worker_id] = self._finished.get(worker_id, 0) + 1
        if seat := self.seats.get(worker_id):
            seat.held = max(0, seat.held - 1)
            seat.finished_lately = max(seat.finished_lately, self._finished[worker_id])
            self._heaps.clear()  # they only notice a load that grew

    def has_room(self) -> bool:
        """Whether a look into the backlog is worth its statement: a quarter of what the fleet
        may hold is free. Its workers have the rest to go on with meanwhile."""
        window = sum(seat.window for seat in self.seats.values())
        held = sum(seat.held for seat in self.seats.values())
        return 4 * (window - held) >= window

    def room(self) -> dict[str, int]:
        """How many more executions of each runtime the fleet may hold now."""
        room: dict[str, int] = {}
        for seat in self.seats.values():
            for runtime in seat.runtimes:
                room[runtime] = room.get(runtime, 0) + max(0, seat.window - seat.held)
        return room

    def _heap(self, runtime: str) -> list[tuple[float, float, _Seat]]:
        if runtime not in self._heaps:
            heap = [
                (seat.load, random.random(), seat)  # noqa: S311 - breaks ties, guards nothing
                for seat in self.seats.values()
                if runtime in seat.runtimes
            ]
            heapq.heapify(heap)
            self._heaps[runtime] = heap
        return self._heaps[runtime]

    def _is_fresh(self, seat: _Seat, now: datetime) -> bool:
        silent_seconds = (now - seat.heartbeat_at).total_seconds()
        return bool(silent_seconds <= settings.MUSTER.staleness_seconds)

    def _what_is_missing(self, runtime: str) -> str:
        if not self.seats:
            return "no workers available: none is active with a fresh heartbeat"
        offered = ", ".join(sorted({r for seat in self.seats.values() for r in seat.runtimes}))
        return f"no workers available: none offers the runtime {runtime} (offered: {offered})"


def last_seen_at(runtime: str) -> datetime | None:
    """The newest heartbeat of any worker that offers this runtime, up or not."""
    beats = [
        worker.heartbeat_at
        for worker in Worker.objects.exclude(heartbeat_at=None).order_by("-heartbeat_at")
        if runtime in worker.runtimes
    ]
    return beats[0] if beats else None


def describe(worker: Worker) -> dict[str, Any]:
    """A worker as listings show it."""
    return {
        "id": worker.pk,
        "name": worker.name,
        "status": worker.status,
        "status_reason": worker.status_reason,
        "incarnation": worker.incarnation,
        "capacity": worker.capacity,
        "runtimes": worker.runtimes,
        "labels": worker.labels,
        "heartbeat_at": worker.heartbeat_at,
        "host": worker.host,
        "pid": worker.pid,
        "version": worker.version,
    }
