"""Choice of a worker for an execution: the least loaded, relative to its size, of those
eligible."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from orchestrator.core import isolation as levels
from orchestrator.core import queue_terms
from orchestrator.core.errors import MusterError
from orchestrator.core.fleet import quarantine, why_none
from orchestrator.core.fleet.needs import Need
from orchestrator.core.fleet.seats import Entry, Heap, LimitedLane, Offer, Seat
from orchestrator.core.models import Execution, Worker
from orchestrator.core.models.executions import OF_ACTION
from orchestrator.core.models.fleet import fresh_between, paused
from orchestrator.core.queue_terms import DEFAULT, queue_of, subscription
from orchestrator.core.states import AttemptKey

REFRESH_SECONDS = 1.0

MOST_HEEDED = 10_000
"""The most attempts that it knows to have been given back; with more it forgets them all."""


class NoWorkerAvailable(MusterError):
    """No active worker can run this action."""


class FleetBusy(MusterError):
    """Every worker that could run this action holds all that it may hold."""


@dataclass
class Placement:
    """Chooses workers for one executor process.

    It counts what it assigns and what is reported as finished, and reads the true numbers from the
    database once a second: a few of each worker, and the offer of each new one. Between two reads
    nothing loops over all workers, so that a choice costs the same in a fleet of any size.

    With several executors the windows are approximate for that second, which costs only balance:
    the compare-and-swap gives each execution to one of them. Not thread-safe: one thread schedules.
    """

    seats: dict[int, Seat] = field(default_factory=dict)
    refused: int = 0
    """Executions that got a worker, and that a limit refused: whoever looks at the backlog sets it
    to 0 before."""
    _offers: dict[int, Offer] = field(default_factory=dict)
    _heaps: dict[Need, Heap] = field(default_factory=dict)
    _room: dict[frozenset[str], int] = field(default_factory=dict)
    """Free places for the default queue by the set of runtimes that a worker offers: there are few
    such sets."""
    _totals: dict[frozenset[str], list[int]] = field(default_factory=dict)
    """Free places and windows by the set of subscriptions."""
    _servers: dict[str, list[Seat]] = field(default_factory=dict)
    """The workers of each subscription, without those that only serve the default queue."""
    _turns: int = 0
    """The number of looks at the backlogs: each begins with another queue."""
    _read_at: float = -REFRESH_SECONDS
    _finished: dict[int, int] = field(default_factory=dict)
    _held: dict[int, int] = field(default_factory=dict)
    """The number of executions that each worker, up or away, held at the last read."""
    _absent: dict[int, int] = field(default_factory=dict)
    """The number of executions that each worker that is away may still get of those pinned to
    it."""
    _turn: tuple[UUID, int] | None = None
    """The suspect that may be placed next, and the worker that is kept empty for it."""
    _missing_code: set[str] = field(default_factory=set)
    """Code that some worker lacks: nearly always none, and then no choice has to check it."""
    _paused_actions: set[str] = field(default_factory=set)
    """Actions that some worker pauses, as `Execution.lane_key` names them: nearly always none."""
    _heeded: set[AttemptKey] = field(default_factory=set)
    """Attempts that workers have given back, and after which the fleet was read."""
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
            "pk",
            "incarnation",
            "capacity",
            "heartbeat_at",
            "cordoned",
            "missing_code",
            "queue_pauses",
        )
        known = {row[0]: row for row in rows}
        self._missing_code = {name for row in known.values() for name in row[5]}
        self._learn({pk: row[1] for pk, row in known.items()})
        self.seats, self._heaps, self._room, self._totals, self._servers = {}, {}, {}, {}, {}
        self._paused_actions = set()
        lanes = self._lanes({pk: row[2] for pk, row in known.items()})
        for pk, _, capacity, heartbeat_at, cordoned, missing_code, pauses in known.values():
            if pk not in self._offers or heartbeat_at is None:
                continue  # it registered again between the two reads
            # a longer pause between two reads must not look like a faster worker
            recently = int(self._finished.get(pk, 0) / max(1.0, age)) if self._finished else 0
            held, slow = loads.get(pk, (0, 0))
            seat = Seat(
                pk, self._offers[pk], capacity, heartbeat_at, cordoned, held, slow, recently
            )
            seat.missing_code = missing_code
            seat.paused = frozenset(paused(pauses, now=now)) if pauses else ()
            self._paused_actions.update(key for key in seat.paused if key.startswith(OF_ACTION))
            seat.lanes = lanes.get(pk, {})
            self.seats[pk] = seat
            if seat.offer.queues:
                self._subscribe(seat)
            self._count(seat)
        self._held = {pk: held for pk, (held, _) in loads.items()}
        self._absent.clear()
        self._quarantine(now)
        self._finished.clear()
        self._missing.clear()
        self._read_at = time.monotonic()

    def heed(self, returned: Collection[AttemptKey], *, now: datetime) -> None:
        """Read the fleet again, once for each of these attempts: the row of the worker that gave it
        back says since then what it takes no more of."""
        if self._heeded.issuperset(returned):
            return
        self.refresh(now=now, older_than_seconds=0.0)
        if len(self._heeded) > MOST_HEEDED:
            self._heeded.clear()
        self._heeded.update(returned)

    def _lanes(self, capacities: Mapping[int, int]) -> dict[int, dict[str, LimitedLane]]:
        """The limited subscriptions of each worker that has any, with what it holds of them."""
        serving = {pk: offer.queues for pk, offer in self._offers.items() if offer.queues}
        if not serving:
            return {}
        names = {queue_of(name) for queues in serving.values() for name in queues} - {DEFAULT}
        terms = queue_terms.queues().terms(names)
        lanes: dict[int, dict[str, LimitedLane]] = {}
        for pk, queues in serving.items():
            capacity = capacities[pk]
            lanes[pk] = {}
            for name, slots in queues.items():
                if slots is not None and slots < capacity:
                    lanes[pk][name] = LimitedLane(slots)
                elif name != DEFAULT:
                    known = terms.get(queue_of(name))
                    lanes[pk][name] = LimitedLane(
                        capacity + (known.prefetch_buffer if known else 0)
                    )
        self._hold(lanes, Execution.objects.load_by_subscription())
        return lanes

    def _hold(
        self, lanes: Mapping[int, dict[str, LimitedLane]], held: Mapping[tuple[int, str], int]
    ) -> None:
        """Count what workers hold of each queue for the subscription that it belongs to."""
        for (worker_id, name), number in held.items():
            theirs = lanes.get(worker_id, {})
            lane = theirs.get(name) or theirs.get(queue_of(name))
            if lane is not None:
                lane.held += number

    def _subscribe(self, seat: Seat) -> None:
        """Note what a worker serves, without the subscriptions that are paused."""
        for name in seat.offer.queues:
            if queue_of(name) in seat.paused:
                seat.lanes[name] = LimitedLane(0)
            elif not seat.is_cordoned:
                self._servers.setdefault(name, []).append(seat)

    def _quarantine(self, now: datetime) -> None:
        """Close each worker that runs a suspect, and the one that is emptied for the next
        suspect."""
        suspects = quarantine.look(now)
        closed = set(suspects.workers)
        self._turn = None
        for suspect in suspects.waiting:
            need = Need.of_execution(suspect)
            need = need._replace(queue=self._served(need.queue, now))
            if suspect.lane_key in self._paused_actions:
                need = need._replace(paused=suspect.lane_key)
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
            and need.paused not in seat.paused
            and (
                seat.worker_id == pinned
                if pinned is not None
                else not seat.is_cordoned and need.may_have(seat.offer) and seat.serves(need.queue)
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
            for pk, *life, runtimes, labels, isolation, queues in offers.values_list(
                "pk", "incarnation", "runtimes", "labels", "isolation", "queues"
            ):
                if life[0] == incarnations[pk]:
                    kept[pk] = Offer(life[0], frozenset(runtimes), labels, isolation, queues)
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
        queue: str = DEFAULT,
        lane_key: str = "",
        pinned: int | None = None,
        avoid: int | None = None,
        suspect: UUID | None = None,
    ) -> int:
        """Choose the worker for one more execution; returns its id, and counts it as held from now
        on.

        `code`: its pack and its action, as workers name what they lack. `queue`: its queue, or the
        retry lane of it, which the workers of the queue serve while none subscribes to the lane.
        `lane_key`: what a worker would pause. A pinned worker is taken as long as it has room and
        does not pause, also while it is away: then its queue's TTL decides; a cordon does not
        count.
        `avoid` is skipped if another has room. A suspect is placed alone, when it is its turn: see
        `fleet.quarantine`. Raises NoWorkerAvailable (says what is missing) and FleetBusy.
        """
        # code that nobody lacks is left out, so that there are no more heaps than needed
        lacked = [name for name in code if name in self._missing_code] if self._missing_code else ()
        if queue != DEFAULT:
            queue = self._served(queue, now)
        need = Need.of(runtime, selector, lacked, isolation, queue)
        if lane_key in self._paused_actions:
            need = need._replace(paused=lane_key)
        if suspect is not None and self._candidates(need, pinned, now):
            return self._pick_alone(suspect, queue)
        if pinned is not None:
            return self._pick_pinned(pinned, need, now)
        heap = self._heap(need)
        heap.update()
        avoided: Entry | None = None
        try:
            while heap.entries:
                entry = heap.pop()
                load, _, seat = entry
                if load != seat.load_in(queue) or not self._is_fresh(seat, now):
                    continue  # the heap also has an entry with its present load, or it is silent
                if seat.worker_id == avoid:
                    avoided = entry
                    continue
                if seat.free_in(queue) or avoided is None or not avoided[2].free_in(queue):
                    return self._take(heap, entry, queue)
                heap.push(entry)
                break
            if avoided is not None:
                entry, avoided = avoided, None
                return self._take(heap, entry, queue)
        finally:
            if avoided is not None:
                heap.push(avoided)
        if need.paused and self._candidates(need._replace(paused=""), None, now):
            raise FleetBusy
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
            if not seat.free or need.paused in seat.paused:
                raise FleetBusy
            self._add(seat, DEFAULT)
        else:
            self._add_absent(worker_id)
        return worker_id

    def _add_absent(self, worker_id: int) -> None:
        """Count one more execution for a worker that is away. Raises FleetBusy if it holds what it
        could hold: the rest waits for it where no TTL runs."""
        if worker_id not in self._absent:
            capacities = Worker.objects.filter(pk=worker_id).values_list("capacity", flat=True)
            window = 2 * (capacities.first() or 1)
            self._absent[worker_id] = window - self._held.get(worker_id, 0)
        if self._absent[worker_id] <= 0:
            raise FleetBusy
        self._absent[worker_id] -= 1

    @property
    def suspect(self) -> UUID | None:
        """The suspect for which a worker is kept empty."""
        return self._turn[0] if self._turn else None

    def _pick_alone(self, suspect: UUID, queue: str) -> int:
        """The worker that was emptied for this suspect. Raises FleetBusy until it is its turn."""
        turn, worker_id = self._turn or (None, 0)
        if turn != suspect or self.seats[worker_id].held:
            raise FleetBusy
        self._turn = None
        self._add(self.seats[worker_id], queue)
        return worker_id

    def _take(self, heap: Heap, entry: Entry, queue: str) -> int:
        seat = entry[2]
        if not seat.free_in(queue):
            heap.push(entry)
            raise FleetBusy
        self._add(seat, queue)
        return seat.worker_id

    def _add(self, seat: Seat, queue: str) -> None:
        """Count one more execution that a worker holds."""
        seat.held += 1
        if seat.lanes and (lane := seat.lane(queue)) is not None:
            lane.held += 1
        self._count(seat)

    def _heap(self, need: Need) -> Heap:
        heap = self._heaps.get(need)
        if heap is None:
            seats = [
                seat
                for seat in self.seats.values()
                if not seat.is_cordoned
                and seat.serves(need.queue)
                and need.paused not in seat.paused
                and need.may_go_to(seat.offer, seat.missing_code)
            ]
            heap = self._heaps[need] = Heap(need.queue, changed=set(seats))
            for seat in seats:
                seat.heaps.append(heap)
        return heap

    def _is_fresh(self, seat: Seat, now: datetime) -> bool:
        oldest, newest = fresh_between(now)
        return oldest <= seat.heartbeat_at <= newest

    # --- counting ---

    def give_back(self, worker_id: int, queue: str) -> None:
        """Count an execution of this queue, or of the retry lane of it, as refused by a limit, and
        not given to the worker that was chosen for it."""
        self.refused += 1
        if seat := self.seats.get(worker_id):
            self._drop(seat, queue)

    def finished(self, worker_id: int, queue: str = DEFAULT) -> None:
        """Count an execution of this queue, or of the retry lane of it, that a worker has ended."""
        self._finished[worker_id] = self._finished.get(worker_id, 0) + 1
        if seat := self.seats.get(worker_id):
            seat.finished_recently = max(seat.finished_recently, self._finished[worker_id])
            self._drop(seat, queue)

    def _drop(self, seat: Seat, queue: str) -> None:
        """Count one execution less that a worker holds."""
        seat.held = max(0, seat.held - 1)
        if seat.lanes and (lane := seat.lane(queue)) is not None:
            lane.held = max(0, lane.held - 1)
        self._count(seat)

    def correct(self, queues: Iterable[str], held: Mapping[tuple[int, str], int]) -> None:
        """Replace what workers hold of these queues, by worker id and subscription, as it has just
        been read while the queues were held."""
        seats = {
            seat.worker_id: seat
            for queue in queues
            for name in (queue, subscription(queue, is_retry=True))
            for seat in self._servers.get(name, ())
        }
        wanted = set(queues)
        for seat in seats.values():
            for name, lane in seat.lanes.items():
                if queue_of(name) in wanted:
                    lane.held = 0
        self._hold({pk: seat.lanes for pk, seat in seats.items()}, held)
        for seat in seats.values():
            self._count(seat)

    def _count(self, seat: Seat) -> None:
        """Update the fleet's room and the heaps after the load of a seat has changed."""
        ahead = seat.capacity - min(seat.slow, seat.capacity)
        window = max(1, seat.capacity + ahead + seat.finished_recently)
        free = 0 if seat.is_closed else max(0, window - seat.held)
        before = seat.room, seat.total, seat.window
        seat.window, seat.free = window, free
        seat.room = seat.free_in(DEFAULT) if seat.serves(DEFAULT) else 0
        seat.total = int(min(free, seat.free_in_lanes)) if seat.lanes else free
        if not seat.is_cordoned:
            runtimes, queues = seat.offer.runtimes, frozenset(seat.offer.queues)
            if seat.serves(DEFAULT):
                self._room[runtimes] = self._room.get(runtimes, 0) + seat.room - before[0]
            totals = self._totals.setdefault(queues, [0, 0])
            totals[0] += seat.total - before[1]
            totals[1] += seat.window - before[2]
        for heap in seat.heaps:
            heap.changed.add(seat)

    def free(self) -> int:
        """The number of executions that the whole fleet may still take now."""
        return sum(free for free, _ in self._totals.values())

    def has_room(self) -> bool:
        """True if reading the backlog is worth a statement: a quarter of what workers of the same
        queues may hold is free. The rest keeps them busy meanwhile."""
        totals = self._totals.values()
        return not totals or any(4 * free >= window for free, window in totals)

    def room(self) -> dict[str, int]:
        """The number of executions of the default queue, of each runtime, that the fleet may still
        take now."""
        room: dict[str, int] = {}
        for runtimes, free in self._room.items():
            for runtime in runtimes:
                room[runtime] = room.get(runtime, 0) + free
        return room

    # --- queues ---

    def paused_actions(self) -> list[str]:
        """The actions without a queue that every worker pauses: nothing of them can start now."""
        if not self._paused_actions:
            return []
        refs = (key.removeprefix(OF_ACTION) for key in self._paused_actions)
        seats = self.seats.values()
        return [ref for ref in refs if all(f"{OF_ACTION}{ref}" in seat.paused for seat in seats)]

    def served_queues(self) -> list[str]:
        """The queues with a name for which there is a worker, in another order at each call, so
        that each begins in its turn."""
        names = sorted({queue_of(name) for name in self._servers} - {DEFAULT})
        if not names:
            return []
        self._turns += 1
        start = self._turns % len(names)
        return names[start:] + names[:start]

    @property
    def is_even_turn(self) -> bool:
        """True at every second call of `served_queues`."""
        return self._turns % 2 == 0

    def serves(self, queue: str) -> bool:
        """Return True if there is a worker for this queue."""
        retry = subscription(queue, is_retry=True)
        return queue in self._servers or retry in self._servers

    def queue_room(self, queue: str) -> int:
        """The number of executions of this queue that its workers may still take now."""
        return sum(
            seat.free_in(name)
            for name in (queue, subscription(queue, is_retry=True))
            for seat in self._servers.get(name, ())
        )

    def limits_slots(self, queue: str) -> bool:
        """Return True if some worker gives fewer than all its slots to this queue."""
        return any(
            seat.lanes[name].window < seat.capacity
            for name in (queue, subscription(queue, is_retry=True))
            for seat in self._servers.get(name, ())
        )

    def _served(self, queue: str, now: datetime) -> str:
        """The subscription that an execution of this queue needs: that of the retry lane only while
        a worker has it."""
        if queue in self._servers and any(
            self._is_fresh(seat, now) for seat in self._servers[queue]
        ):
            return queue
        return queue_of(queue)
