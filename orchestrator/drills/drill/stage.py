"""The stage of a drill: its workers, its timeline, and its executions, which remain as evidence."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction

from orchestrator.core import brokers, clock, executions, fleet, packs, private_files, topology
from orchestrator.core.errors import MusterError
from orchestrator.core.executions import NewExecution
from orchestrator.core.fleet.needs import RESERVED
from orchestrator.core.models import Execution, ExecutionEvent, Worker
from orchestrator.drills import services
from orchestrator.drills.supervisor import Supervisor

ACTOR = "drill"
NAMES = ("drill-a", "drill-b")
SELECTOR = {RESERVED: "drill"}
SLOTS = 2
START_SECONDS = 60.0
LOOK_SECONDS = 0.05


class DrillStopped(MusterError):
    """The drill could not go on."""


@dataclass(frozen=True)
class Moment:
    """A line of the timeline, by the database's clock."""

    at: datetime
    what: str
    detail: str


@dataclass
class Timeline:
    """The events of a drill, reported as they happen. Seconds count from the fault."""

    tell: Callable[[Moment, float | None], None]
    moments: list[Moment] = field(default_factory=list)
    fault_at: datetime | None = None

    def add(self, what: str, detail: str, *, at: datetime | None = None) -> datetime:
        moment = Moment(at or clock.now(), what, detail)
        if what == "fault" and self.fault_at is None:
            self.fault_at = moment.at
        self.moments.append(moment)
        self.tell(moment, self.seconds_to(moment.at))
        return moment.at

    def seconds_to(self, at: datetime | None) -> float | None:
        """Seconds from the fault; None without a fault or a time."""
        if at is None or self.fault_at is None:
            return None
        return round((at - self.fault_at).total_seconds(), 3)


class Stage:
    """The drill's workers and its executions."""

    def __init__(self, supervisor: Supervisor, timeline: Timeline, journal: Path) -> None:
        self.supervisor = supervisor
        self.timeline = timeline
        self.journal = journal
        self.ids: list[UUID] = []

    def request(self, action: str, *, count: int, seconds: float) -> list[UUID]:
        """Request executions that only the drill's workers may run."""
        new = NewExecution(
            action_ref=f"drill.{action}",
            parameters={"seconds": seconds, "journal": str(self.journal)},
            correlation_id=ACTOR,
        )
        with transaction.atomic():
            rows = executions.request_many([new] * count, requested_by=ACTOR, now=clock.now())
            ids = [row.pk for row in rows]
            # in the same transaction: no executor sees them without the selector
            Execution.objects.filter(pk__in=ids).update(worker_selector=SELECTOR)
        self.ids += ids
        return ids

    def rows(self) -> list[Execution]:
        return list(Execution.objects.filter(pk__in=self.ids).order_by("pk"))

    def events(self) -> list[ExecutionEvent]:
        return list(ExecutionEvent.objects.filter(execution_id__in=self.ids).order_by("at", "pk"))

    def worker(self, name: str) -> Worker:
        return Worker.objects.get(name=name)

    def held_by(self, worker: Worker, *statuses: str) -> int:
        return sum(row.worker_id == worker.pk and row.status in statuses for row in self.rows())

    def wait_for(self, look: Callable[[], Any], what: str, *, within_seconds: float) -> Any:
        """Look until there is a result, and return it. Raises DrillStopped."""
        until = time.monotonic() + within_seconds
        while not (result := look()):
            for death in self.supervisor.look():
                self.timeline.add("note", f"{death.name} ended ({death.cause})")
            if time.monotonic() > until:
                raise DrillStopped(
                    f"Waited {within_seconds:.0f} s for this, and it did not happen: {what}"
                )
            time.sleep(LOOK_SECONDS)
        return result

    def begun(self) -> set[UUID]:
        """The executions whose action runs or has run, by their own journal: one that is claimed
        may still wait for its process, and goes back if its worker stops."""
        return {UUID(note["execution"]) for note in self._notes()}

    def _notes(self) -> Iterator[dict[str, Any]]:
        if self.journal.exists():
            # who writes the last line may not have come to its end
            yield from map(json.loads, self.journal.read_text().split("\n")[:-1])

    def overlap_seconds(self) -> float:
        """The longest time for which two attempts at one execution ran at once, by their own
        journal: on one machine, by one clock."""
        spans: dict[str, dict[int, tuple[float, float]]] = {}
        for note in self._notes():
            attempts = spans.setdefault(note["execution"], {})
            first, _ = attempts.get(note["attempt"], (note["at"], 0.0))
            attempts[note["attempt"]] = (first, note["at"])
        overlap = 0.0
        for attempts in spans.values():
            numbers = sorted(attempts)
            for earlier, later in pairwise(numbers):
                overlap = max(overlap, attempts[earlier][1] - attempts[later][0])
        return round(overlap, 3)


@contextmanager
def set_up(
    timeline: Timeline,
    *,
    names: Sequence[str] = NAMES,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Stage]:
    """Start the drill's own reserved workers; stop and retire them afterwards."""
    _refuse_another_drill()
    packs.install(packs.load(settings.BASE_DIR / "packs" / "drill"), now=clock.now())
    directory = Path(settings.DATA_DIR) / "drill"
    private_files.make_directory(directory)
    journal = directory / f"{clock.now():%Y%m%dT%H%M%S}.jsonl"
    private_files.make(journal)
    labels = [f"{key}={value}" for key, value in SELECTOR.items()]
    supervisor = Supervisor(
        [services.worker(n, concurrency=SLOTS, restarts=False, labels=labels) for n in names],
        log_dir=directory,
        work_dir=settings.BASE_DIR,
        environment={**os.environ, **(environment or {})},
    )
    stage = Stage(supervisor, timeline, journal)
    try:
        supervisor.start()
        stage.wait_for(
            lambda: _are_up(names), f"{', '.join(names)} are up", within_seconds=START_SECONDS
        )
        timeline.add("ready", f"{', '.join(names)}: {SLOTS} slots each, for this drill alone")
        yield stage
    finally:
        supervisor.stop(grace_seconds=settings.MUSTER.shutdown_timeout_seconds + 10)
        _retire(names)


def _refuse_another_drill() -> None:
    if up := Worker.objects.up().fresh(clock.now()).filter(name__in=NAMES).first():
        raise DrillStopped(f"{up.name} is up: another drill runs, or ended a moment ago")


def _are_up(names: Sequence[str]) -> bool:
    active = Worker.objects.reachable(clock.now()).filter(name__in=names)
    return active.count() == len(names)


def _retire(names: Sequence[str]) -> None:
    """Remove their queues. Messages in them are out of date, as nothing of the drill is open. If
    something is still open, the workers stay, and the janitor tries again."""
    expected: tuple[type[Exception], ...] = (MusterError, *brokers.errors())
    for worker in Worker.objects.filter(name__in=names):
        try:
            if not Execution.objects.held_by(worker).exists():
                with brokers.connection() as link:
                    channel: Any = link.default_channel
                    channel.queue_purge(topology.worker_queue(worker.pk).name)
            fleet.retire(worker_id=worker.pk, actor=ACTOR, reason="drill over", now=clock.now())
        except expected:
            continue
