"""The facts that a keeper has to know of its gates, and the messages that it passes on without a
row."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

import structlog
from django.conf import settings
from django.db import DatabaseError, InterfaceError

from orchestrator.core import clock, investigations, lanes, publisher
from orchestrator.core.errors import MusterError
from orchestrator.core.lanes import Fate, RawMessage
from orchestrator.core.models import DLQEntry, Execution
from orchestrator.queues.gates import choosing, intake, windows
from orchestrator.queues.gates import headers as names
from orchestrator.queues.gates.judging import Delivery, Does, Verdict
from orchestrator.queues.gates.replies import carried_properties, counted
from orchestrator.queues.models import Gate, Keeper

log = structlog.get_logger(__name__)

WINDOWS_EVERY_SECONDS = 5.0
PARKED_EVERY_SECONDS = 10.0
PARKED_FROM = timedelta(seconds=60)
"""An execution that waits for longer than this does not keep its place in the window."""
DIFFERS_PAUSE_SECONDS = 10.0

is_changed = windows.is_to_be_renewed


class Plan:
    """The gates of one broker, their prefetch, and what stands in the way."""

    def __init__(self, broker: str, name: str) -> None:
        self.broker, self.name = broker, name
        self.gates: dict[int, Gate] = {}
        """Those that take messages in now."""
        self.all_gates: dict[int, Gate] = {}
        """Those that owe answers, too."""
        self.problems: dict[str, str] = {}
        self._slots: dict[str, int] = {}
        self._keepers = 1
        self._windows_at = self._parked_at = 0.0
        self._served_at: dict[str, float] = {}
        self._blocked_until: dict[int, float] = {}

    @property
    def all_ids(self) -> list[int]:
        return list(self.all_gates)

    def refresh(self, *, now: datetime) -> None:
        """Read the gates, and now and then who serves them."""
        found = Gate.objects.filter(broker=self.broker).select_related("queue__action")
        self.all_gates = {gate.queue_id: gate for gate in found}
        self.gates = {
            id: gate
            for id, gate in self.all_gates.items()
            if gate.queue.accepts and gate.queue.retired_at is None
        }
        if self.gates and time.monotonic() >= self._windows_at:
            self._windows_at = time.monotonic() + WINDOWS_EVERY_SECONDS
            self._slots = windows.slots([gate.queue.name for gate in self.gates.values()], now=now)
            self._keepers = windows.keepers(self.broker, now=now)

    def prefetch(self, gate: Gate) -> int:
        """The number of messages of this gate to take ahead; 0 while nobody has served its queue
        for so long that its work would only lie here: the broker keeps it."""
        name, monotonic = gate.queue.name, time.monotonic()
        slots = self._slots.get(name, 0)
        if slots or name not in self._served_at:
            self._served_at[name] = monotonic
        unserved_seconds = monotonic - self._served_at[name]
        if unserved_seconds > settings.MUSTER.no_worker_grace_seconds:
            return 0
        size: int = settings.MUSTER.batch_size
        return windows.prefetch(gate, slots=slots, keepers=self._keepers, batch_size=size)

    def parked(self, waiting: Mapping[UUID, int]) -> set[int]:
        """Tickets whose executions wait for a later time; asked now and then."""
        if not waiting or time.monotonic() < self._parked_at:
            return set()
        self._parked_at = time.monotonic() + PARKED_EVERY_SECONDS
        later = clock.now() + PARKED_FROM
        rows = Execution.objects.open().filter(pk__in=list(waiting), next_retry_at__gt=later)
        return {waiting[id] for id in rows.order_by().values_list("pk", flat=True)}

    # --- what stands in the way ---

    def may_declare(self, gate: Gate) -> bool:
        return time.monotonic() >= self._blocked_until.get(gate.queue_id, 0.0)

    def note_refused(self, gate: Gate, text: str) -> None:
        """Note that the broker has another queue of this name, or does not let us have it."""
        self._blocked_until[gate.queue_id] = time.monotonic() + DIFFERS_PAUSE_SECONDS
        self.problems[gate.queue.name] = text
        log.error("gate takes nothing in", queue=gate.queue.name, refused=text)

    def note_alive(self, *, held: int, now: datetime) -> None:
        """Write down that this keeper is there, and which gates the broker refuses."""
        open_names = {gate.queue.name for gate in self.gates.values()}
        self.problems = {name: text for name, text in self.problems.items() if name in open_names}
        problem = "; ".join(self.problems.values())
        self._note(held=held, problem=problem, refused=self.problems, now=now)

    def note_opened(self, gate: Gate) -> None:
        """Note that the broker lets us have the queues of this gate."""
        self.problems.pop(gate.queue.name, None)

    def note_problem(self, text: str) -> None:
        """Write down that the broker cannot be reached."""
        try:
            self._note(held=0, problem=text, refused={}, now=clock.now())
        except (DatabaseError, InterfaceError):  # it may be away, too
            log.warning("problem of a gate not noted", problem=text)

    def _note(self, *, held: int, problem: str, refused: Mapping[str, str], now: datetime) -> None:
        Keeper.objects.update_or_create(
            name=self.name,
            broker=self.broker,
            defaults={
                "seen_at": now,
                "held": held,
                "problem": problem[:500],
                "refused": {name: text[:500] for name, text in refused.items()},
            },
        )

    def leave(self) -> None:
        try:
            Keeper.objects.filter(name=self.name, broker=self.broker).delete()
        except (DatabaseError, InterfaceError):  # it is forgotten in time
            log.warning("keeper not removed", keeper=self.name)


def pass_on(pairs: Sequence[tuple[Delivery, Verdict]], *, gate: Gate, now: datetime) -> list[Fate]:
    """Publish what has no row: forwarded, counted and rejected messages; returns the fate of each.
    A rejected one without a queue for it is kept as a dead letter, and so taken."""
    fates = [Fate(lanes.TAKEN)] * len(pairs)
    sent: list[tuple[int, RawMessage]] = []
    for position, (delivery, verdict) in enumerate(pairs):
        if verdict.does is Does.KEEP_REJECTED and not gate.rejected_queue:
            investigations.keep([_entry(delivery, gate, now)])
        else:
            sent.append((position, copy_of(delivery, verdict, gate=gate)))
    try:
        outcomes = publisher.send_raw([message for _, message in sent], broker=gate.broker)
    except MusterError as error:
        outcomes = [Fate(lanes.REFUSED, str(error))] * len(sent)
    for (position, message), fate in zip(sent, outcomes, strict=True):
        fates[position] = fate._replace(reason=f"{message.routing_key}: {fate.reason}")
    return fates


def copy_of(delivery: Delivery, verdict: Verdict, *, gate: Gate) -> RawMessage:
    """The copy of a message for another queue, with all that it had."""
    headers = names.carried(delivery.headers)
    if verdict.does is Does.KEEP_REJECTED:
        queue = gate.rejected_queue
        kept = (names.RETRY, names.RETRY_LIMIT, names.REJECTED)
        headers |= {name: delivery.headers[name] for name in kept if name in delivery.headers}
    elif verdict.does is Does.RETRY:
        queue = gate.retries_go_to
        headers = counted(headers, verdict.tries, choosing.retry_limit(gate))
    else:
        queue = verdict.to
        if delivery.reading.tries:
            headers = counted(headers, delivery.reading.tries, choosing.retry_limit(gate))
    properties = carried_properties(delivery.properties)
    return RawMessage(delivery.body, queue, headers=headers, properties=properties)


def _entry(delivery: Delivery, gate: Gate, now: datetime) -> DLQEntry:
    return intake.entry(
        delivery,
        gate=gate,
        reason=DLQEntry.Reason.MESSAGE_INVALID,
        detail="a rejected task message came back, and its gate has no queue for such messages",
        now=now,
    )
