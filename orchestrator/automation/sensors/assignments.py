"""The assignment of a sensor to the service that runs it: taken with a lease, lost without it, and
never given up.

A sensor that fails starts again after 1, 2, 4 .. 60 s, for ever. After FAILING failures within
WINDOW, or in a row, somebody is to look: an investigation is opened, and an event `core.sensor`
recorded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction

from orchestrator.automation import assigning, triggers
from orchestrator.automation.assigning import FREE
from orchestrator.automation.models import Assignment, Sensor, SensorService
from orchestrator.automation.recording import NewEvent, record_many
from orchestrator.automation.sensors import services
from orchestrator.automation.states import AssignmentState
from orchestrator.automation.subjects import subject_of_assignment
from orchestrator.automation.trigger_types import SENSOR
from orchestrator.core import clock, investigations
from orchestrator.core.models import DLQEntry
from orchestrator.core.state_machine import Move

FAILING = 5
WINDOW = timedelta(minutes=10)
LONGEST_PAUSE_SECONDS = 60.0
SETTLED = timedelta(minutes=1)
"""After a life of this length the next pause is the shortest again."""
FAIR = timedelta(seconds=3)
"""For so long a vacant sensor is left to services that run fewer."""
PROBLEM_CHARACTERS = 200


@dataclass(frozen=True)
class Lease:
    """The right to run a sensor, as long as its fence is that of the row."""

    assignment_id: UUID
    fence: int
    sensor: Sensor
    """Loaded with its pack, and with its trigger's type."""


def take(
    service: SensorService,
    *,
    fits: Callable[[Sensor], bool],
    now: datetime,
    busy: Collection[UUID] = (),
) -> list[Assignment]:
    """Take what this service is to start now; the rows, which nobody else has.

    Its own that have backed off come first. Vacant ones are shared: a service that has more than
    its part waits a moment for the others. `busy`: those that it cannot start yet.
    """
    due = Assignment.objects.due(now).exclude(pk__in=busy).with_sensor()
    own = list(due.filter(state=AssignmentState.BACKING_OFF, service=service))
    vacant = [row for row in due.filter(state=AssignmentState.VACANT) if fits(row.sensor)]
    chosen = own + _fair_part(vacant, service, now)
    until = now + timedelta(seconds=services.lease_seconds())
    values = {"service": service, "lease_until": until, "next_start_at": None}
    taken = _move_each(chosen, "take", values, now=now, actor=_actor(service))
    return list(Assignment.objects.filter(pk__in=taken).with_sensor())


def ready(lease: Lease, *, now: datetime, actor: str) -> bool:
    """It runs; False if it is no longer the caller's."""
    move = Move(lease.assignment_id, AssignmentState.STARTING, lease.fence)
    return bool(Assignment.objects.transition_many("ready", [move], now=now, actor=actor))


@transaction.atomic
def fail(lease: Lease, problem: str, *, lived: timedelta, now: datetime, actor: str) -> bool:
    """It ended, or fell silent: have it start again after a while, for ever; False if it is no
    longer the caller's."""
    row = _current(lease)
    if row is None or row.state not in (AssignmentState.STARTING, AssignmentState.RUNNING):
        return False
    failures = 1 if lived >= SETTLED else row.failures + 1
    pause = min(2.0 ** min(failures - 1, 10), LONGEST_PAUSE_SECONDS)
    recent = [at for at in row.failed_at if datetime.fromisoformat(at) > now - WINDOW]
    failed_at = [*recent, now.isoformat()][-FAILING:]
    values = {
        "failures": failures,
        "failed_at": failed_at,
        "next_start_at": now + timedelta(seconds=pause),
        "restarts": row.restarts + 1,
    }
    reason = problem[:PROBLEM_CHARACTERS]
    if not _move_each([row], "fail", values, now=now, actor=actor, reason=reason):
        return False
    # in a row: each life may be long, or begin with a long preparation
    if len(failed_at) >= FAILING or failures >= FAILING:
        _report_failing(row, problem, failures, now, actor)
    return True


def give_up(leases: Collection[Lease], *, now: datetime, actor: str) -> None:
    """Leave these to others, as the service stops."""
    rows = Assignment.objects.held().filter(pk__in=[each.assignment_id for each in leases])
    fences = {each.assignment_id: each.fence for each in leases}
    mine = [row for row in rows if fences[row.pk] == row.fence]
    ending = [row for row in mine if row.state == AssignmentState.ENDING]
    for row in ending:
        assigning.ended(row, now=now, actor=actor)
    others = [row for row in mine if row not in ending]
    _move_each(others, "give_up_lease", FREE, now=now, actor=actor)


def release_overdue(*, now: datetime, actor: str = "maintenance") -> int:
    """Take away the leases that have run out; how many. Safe to run twice, and at once.

    If the clock was set forward, all of them seem to have run out, until they are renewed. So
    nothing is taken away by a process that has not watched the clock for a lease: ADR 20.
    """
    seconds = services.lease_seconds()
    overdue = Assignment.objects.overdue(now, seconds)
    if not overdue.exists():  # the usual case
        return 0
    if clock.steady_seconds() < seconds:
        return 0
    with transaction.atomic():
        found = list(overdue.with_sensor())
        ending = [row for row in found if row.state == AssignmentState.ENDING]
        freed = [row for row in ending if assigning.ended(row, now=now, actor=actor)]
        rows = [row for row in found if row not in ending]
        lost = _move_each(rows, "lose", FREE, now=now, actor=actor)
        for row in rows:
            if row.pk in lost:
                service = row.service.name if row.service else ""
                _record(row, "lost", now, service=service)
    return len(lost) + len(freed)


def _fair_part(vacant: list[Assignment], service: SensorService, now: datetime) -> list[Assignment]:
    if not vacant:
        return []
    alive = SensorService.objects.alive(now, services.lease_seconds()).count()
    part = math.ceil(Assignment.objects.wanted().count() / max(alive, 1))
    room = max(part - Assignment.objects.held().filter(service=service).count(), 0)
    waited = [row for row in vacant[room:] if not now - FAIR < row.changed_at <= now]
    return vacant[:room] + waited


def _current(lease: Lease) -> Assignment | None:
    """The row, locked, if the lease still holds."""
    rows = Assignment.objects.select_for_update(no_key=True, of=("self",))
    return rows.filter(pk=lease.assignment_id, fence=lease.fence).select_related("sensor").first()


def _move_each(
    rows: Collection[Assignment],
    event: str,
    values: dict[str, Any],
    *,
    now: datetime,
    actor: str,
    reason: str | None = None,
) -> set[UUID]:
    moves = [Move(row.pk, row.state, row.fence, values) for row in rows]
    return Assignment.objects.transition_many(event, moves, now=now, actor=actor, reason=reason)


def _actor(service: SensorService) -> str:
    return f"sensor:{service.name}"[:150]


def _report_failing(
    row: Assignment, problem: str, failures: int, now: datetime, actor: str
) -> None:
    opened = investigations.open_for(
        [subject_of_assignment(row)],
        reason=DLQEntry.Reason.SENSOR_FAILING,
        detail=problem,
        now=now,
        actor=actor,
    )
    if opened:
        _record(row, "failing", now, failures=failures, problem=problem[:PROBLEM_CHARACTERS])


def _record(row: Assignment, change: str, now: datetime, **facts: Any) -> None:
    """Record an event `core.sensor`."""
    new = NewEvent(
        trigger=triggers.ensure(SENSOR, {}, now=now),
        payload={"sensor": row.sensor.ref, "change": change, **facts},
        key=f"{row.sensor.ref[:120]}:{row.fence}:{change}:{now.isoformat()}",
        occurred_at=now,
        source="sensor",
        sent_by=f"sensor:{row.sensor.ref}",
    )
    record_many([new], now=now, by_muster=True)
