"""Choice of a worker for an execution: the least loaded, relative to its size, of those
eligible."""

from __future__ import annotations

import heapq
import math
import random
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from orchestrator.core import isolation as levels
from orchestrator.core.errors import MusterError
from orchestrator.core.fleet import quarantine, why_none
from orchestrator.core.fleet.needs import Need
from orchestrator.core.models import Execution, Worker
from orchestrator.core.models.fleet import fresh_between

REFRESH_SECONDS = 1.0


class NoWorkerAvailable(MusterError):
    """No active worker can run this action."""


class FleetBusy(MusterError):
    """Every worker that could run this action holds all that it may hold."""


class _Offer(NamedTuple):
    """The properties of a worker that do not change during its life."""

    incarnation: int
    runtimes: frozenset[str]
    labels: dict[str, str]
    isolation: str


@dataclass(eq=False, slots=True)
class _Seat:
    """A worker as placement sees it: what it holds, and what it may hold."""

    worker_id: int
    offer: _Offer
    capacity: int
    heartbeat_at: datetime
    is_cordoned: bool
    held: int
    slow: int = 0
    """Slots whose action has run for a while: nobody knows when they become free."""
    finished_recently: int = 0
    free: int = 0
    """The number of executions that it may still take, as counted in the fleet's room."""
    window: int = 0
    """Twice the slots, so that none is idle, minus the slow ones, behind which nothing should wait;
    plus what it finished in the last second.

    More would only wait in its queue, while other workers may become free: a backlog belongs in the
    database, where no TTL runs.
    """
    is_closed: bool = False
    """It holds an execution that must run alone, or is kept empty for one."""
    missing_code: Mapping[str, str] = field(default_factory=dict)
    heaps: list[list[_Entry]] = field(default_factory=list)
    """The heaps that contain it; each has an entry with its present load."""

    @property
    def load(self) -> float:
        return math.inf if self.is_closed else self.held / self.window


_Entry = tuple[float, float, _Seat]
"""A load, a random number that breaks ties, and the seat; out of date once its load has changed."""


@dataclass
class Placement:
    """Chooses workers for one executor process.

    It counts what it assigns and what is reported as finished, and reads the true numbers from the
    database once a second: a few of each worker, and the offer of each new one. Between two reads
    nothing loops over all workers, so that a choice costs the same in a fleet of any size.

    With several executors the windows are approximate for that second, which costs only balance:
    the compare-and-swap gives each execution to one of them. Not thread-safe: one thread schedules.
    """

    seats: dict[int, _Seat] = field(default_factory=dict)
    _offers: dict[int, _Offer] = field(default_factory=dict)
    _heaps: dict[Need, list[_Entry]] = field(default_factory=dict)
    _room: dict[frozenset[str], int] = field(default_factory=dict)
    """Free places by the set of runtimes that a worker offers: there are few such sets."""
    _window: int = 0
    _read_at: float = -REFRESH_SECONDS
    _finished: dict[int, int] = field(default_factory=dict)
    _turn: tuple[UUID, int] | None = None
    """The suspect that may be placed next, and the worker that is kept empty for it."""
    _missing_code: set[str] = field(default_factory=set)
    """Code that some worker lacks: nearly always none, and then no choice has to check it."""
    _missing: dict[Need, str] = field(default_factory=dict)
    """Explanations of what is missing for each need, so that a batch with the same need asks
    once."""

    def refresh(self, *, now: datetime, older_than_seconds: float = REFRESH_SECONDS) -> None:
        """Read the fleet again, unless the last read is more recent than this, by default a
        second."""
        age = time.monotonic() - self._read_at
        if age < older_than_seconds:
            return
        loads = Execution.objects.slow_by_worker(now)
        reachable = Worker.objects.reachable(now).order_by()
        rows = reachable.values_list(
            "pk", "incarnation", "capacity", "heartbeat_at", "cordoned", "missing_code"
        )
        known = {row[0]: row for row in rows}
        self._missing_code = {name for row in known.values() for name in row[5]}
        self._learn({pk: row[1] for pk, row in known.items()})
        self.seats, self._heaps, self._room, self._window = {}, {}, {}, 0
        for pk, _, capacity, heartbeat_at, cordoned, missing_code in known.values():
            if pk not in self._offers or heartbeat_at is None:
                continue  # it registered again between the two reads
            # a longer pause between two reads must not look like a faster worker
            recently = int(self._finished.get(pk, 0) / max(1.0, age)) if self._finished else 0
            held, slow = loads.get(pk, (0, 0))
            seat = _Seat(
                pk, self._offers[pk], capacity, heartbeat_at, cordoned, held, slow, recently
            )
            seat.missing_code = missing_code
            self.seats[pk] = seat
            self._count(seat)
        self._quarantine(now)
        self._finished.clear()
        self._missing.clear()
        self._read_at = time.monotonic()

    def _quarantine(self, now: datetime) -> None:
        """Close each worker that runs a suspect, and the one that is emptied for the next
        suspect."""
        suspects = quarantine.look(now)
        closed = set(suspects.workers)
        self._turn = None
        for suspect in suspects.waiting:
            need = Need.of_execution(suspect)
            if candidates := self._candidates(need, suspect.pinned_worker_id, now):
                worker_id = quarantine.worker_for(suspect.pk, candidates)
                self._turn = suspect.pk, worker_id
                closed.add(worker_id)
                break
        for seat in filter(None, map(self.seats.get, closed)):
            seat.is_closed = True
            self._count(seat)

    def _candidates(self, need: Need, pinned: int | None, now: datetime) -> list[int]:
        """The workers that may take an execution with this need, full or not."""
        return [
            seat.worker_id
            for seat in self.seats.values()
            if self._is_fresh(seat, now)
            and need.is_met_by(seat.offer, seat.missing_code)
            and (
                seat.worker_id == pinned
                if pinned is not None
                else not seat.is_cordoned and need.may_have(seat.offer.labels)
            )
        ]

    def _learn(self, incarnations: Mapping[int, int]) -> None:
        """Read the offers of workers whose present life is not known yet."""
        kept = {
            pk: offer
            for pk, offer in self._offers.items()
            if incarnations.get(pk) == offer.incarnation
        }
        if new := [pk for pk in incarnations if pk not in kept]:
            offers = Worker.objects.filter(pk__in=new).order_by()
            for pk, *life, runtimes, labels, isolation in offers.values_list(
                "pk", "incarnation", "runtimes", "labels", "isolation"
            ):
                if life[0] == incarnations[pk]:
                    kept[pk] = _Offer(life[0], frozenset(runtimes), labels, isolation)
        self._offers = kept

    def expire(self) -> None:
        """Have the fleet read again before the next choice."""
        self._read_at = -REFRESH_SECONDS

    # --- choosing ---

    def pick(
        self,
        *,
        runtime: str,
        now: datetime,
        selector: Mapping[str, str] | None = None,
        code: Iterable[str] = (),
        isolation: str = levels.PROCESS,
        pinned: int | None = None,
        avoid: int | None = None,
        suspect: UUID | None = None,
    ) -> int:
        """Choose the worker for one more execution; returns its id, and counts it as held from now
        on.

        `code`: its pack and its action, as workers name what they lack. A pinned worker is taken as
        long as it has room, or is down: then its queue's TTL decides; a cordon does not count.
        `avoid` is skipped if another has room. A suspect is placed alone, when it is its turn: see
        `fleet.quarantine`. Raises NoWorkerAvailable (says what is missing) and FleetBusy.
        """
        # code that nobody lacks is left out, so that there are no more heaps than needed
        lacked = [name for name in code if name in self._missing_code] if self._missing_code else ()
        need = Need.of(runtime, selector, lacked, isolation)
        if suspect is not None and self._candidates(need, pinned, now):
            return self._pick_alone(suspect)
        if pinned is not None:
            return self._pick_pinned(pinned, need, now)
        heap = self._heap(need)
        avoided: _Entry | None = None
        try:
            while heap:
                entry = heapq.heappop(heap)
                load, _, seat = entry
                if load != seat.load or not self._is_fresh(seat, now):
                    continue  # the heap also has an entry with its present load, or it is silent
                if seat.worker_id == avoid:
                    avoided = entry
                    continue
                if seat.free or avoided is None or not avoided[2].free:
                    return self._take(heap, entry)
                heapq.heappush(heap, entry)
                break
            if avoided is not None:
                entry, avoided = avoided, None
                return self._take(heap, entry)
        finally:
            if avoided is not None:
                heapq.heappush(heap, avoided)
        if need not in self._missing:
            self._missing[need] = why_none.explain(need, now=now)
        raise NoWorkerAvailable(self._missing[need])

    def _pick_pinned(self, worker_id: int, need: Need, now: datetime) -> int:
        seat = self.seats.get(worker_id)
        if seat is not None and self._is_fresh(seat, now):
            if not need.is_met_by(seat.offer, seat.missing_code):
                raise NoWorkerAvailable(
                    why_none.explain_pinned(need, seat.offer, seat.missing_code)
                )
            if not seat.free:
                raise FleetBusy
            seat.held += 1
            self._count(seat)
        return worker_id

    @property
    def suspect(self) -> UUID | None:
        """The suspect for which a worker is kept empty."""
        return self._turn[0] if self._turn else None

    def _pick_alone(self, suspect: UUID) -> int:
        """The worker that was emptied for this suspect. Raises FleetBusy until it is its turn."""
        turn, worker_id = self._turn or (None, 0)
        if turn != suspect or self.seats[worker_id].held:
            raise FleetBusy
        self._turn = None
        self.seats[worker_id].held += 1
        self._count(self.seats[worker_id])
        return worker_id

    def _take(self, heap: list[_Entry], entry: _Entry) -> int:
        seat = entry[2]
        if not seat.free:
            heapq.heappush(heap, entry)
            raise FleetBusy
        seat.held += 1
        self._count(seat)
        return seat.worker_id

    def _heap(self, need: Need) -> list[_Entry]:
        heap = self._heaps.get(need)
        if heap is None:
            seats = [
                seat
                for seat in self.seats.values()
                if not seat.is_cordoned and need.may_go_to(seat.offer, seat.missing_code)
            ]
            heap = [(seat.load, random.random(), seat) for seat in seats]  # noqa: S311 - no secret
            heapq.heapify(heap)
            self._heaps[need] = heap
            for seat in seats:
                seat.heaps.append(heap)
        return heap

    def _is_fresh(self, seat: _Seat, now: datetime) -> bool:
        oldest, newest = fresh_between(now)
        return oldest <= seat.heartbeat_at <= newest

    # --- counting ---

    def finished(self, worker_id: int) -> None:
        """Count an execution that a worker has ended."""
        self._finished[worker_id] = self._finished.get(worker_id, 0) + 1
        if seat := self.seats.get(worker_id):
            seat.held = max(0, seat.held - 1)
            seat.finished_recently = max(seat.finished_recently, self._finished[worker_id])
            self._count(seat)

    def _count(self, seat: _Seat) -> None:
        """Update the fleet's room and the heaps after the load of a seat has changed."""
        ahead = seat.capacity - min(seat.slow, seat.capacity)
        window = max(1, seat.capacity + ahead + seat.finished_recently)
        free = 0 if seat.is_closed else max(0, window - seat.held)
        if not seat.is_cordoned:
            kind = seat.offer.runtimes
            self._room[kind] = self._room.get(kind, 0) + free - seat.free
            self._window += window - seat.window
        seat.window, seat.free = window, free
        for heap in seat.heaps:
            heapq.heappush(heap, (seat.load, random.random(), seat))  # noqa: S311 - no secret

    def free(self) -> int:
        """The number of executions that the whole fleet may still take now."""
        return sum(self._room.values())

    def has_room(self) -> bool:
        """True if reading the backlog is worth a statement: a quarter of what the fleet may hold is
        free. The rest keeps its workers busy meanwhile."""
        return 4 * self.free() >= self._window

    def room(self) -> dict[str, int]:
        """The number of executions of each runtime that the fleet may still take now."""
        room: dict[str, int] = {}
        for runtimes, free in self._room.items():
            for runtime in runtimes:
                room[runtime] = room.get(runtime, 0) + free
        return room
