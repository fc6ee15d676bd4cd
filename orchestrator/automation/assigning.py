"""The decision whether a sensor is to run somewhere: wanted, not wanted, or started again.

A sensor that runs is asked to end by its service, which records its last lines first: they may come
from where nobody can read them again. So it is `ending` before it is unwanted or vacant.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction

from orchestrator.automation.models import Assignment, Sensor
from orchestrator.automation.models.sensors import POLL
from orchestrator.automation.states import AssignmentState
from orchestrator.core.state_machine import Move

FREE: dict[str, Any] = {"service": None, "lease_until": None}
"""The values of an assignment that no service holds."""
FORGIVEN: dict[str, Any] = {"next_start_at": None, "failures": 0}


@transaction.atomic
def follow(sensor: Sensor, *, now: datetime, actor: str) -> None:
    """Have it run somewhere if it is enabled, and nowhere otherwise."""
    row = _locked(sensor, now)
    is_wanted = row.state != AssignmentState.UNWANTED
    if sensor.is_enabled and not is_wanted:
        _move(row, "want", now=now, actor=actor)
    elif is_wanted and not sensor.is_enabled:
        _end(row, sensor, now=now, actor=actor)


@transaction.atomic
def restart(sensor: Sensor, *, now: datetime, actor: str) -> None:
    """End it wherever it runs, and start it again with the same cursor. What it had reported and
    was not recorded, it reports again."""
    row = _locked(sensor, now)
    if row.state != AssignmentState.UNWANTED:
        _end(row, sensor, now=now, actor=actor)


@transaction.atomic
def ended(row: Assignment, *, now: datetime, actor: str) -> bool:
    """It has ended, as it was asked to: free it, for its next start if it is enabled still. False
    if it is no longer what the caller saw."""
    current = Assignment.objects.select_for_update(no_key=True).filter(pk=row.pk, fence=row.fence)
    row_now = current.filter(state=AssignmentState.ENDING).first()
    if row_now is None:
        return False
    # read after the lock: somebody may just have changed his mind
    _free(row_now, Sensor.objects.get(pk=row_now.sensor_id), now=now, actor=actor)
    return True


def _locked(sensor: Sensor, now: datetime) -> Assignment:
    row, _ = Assignment.objects.get_or_create(sensor=sensor, defaults={"changed_at": now})
    return Assignment.objects.select_for_update(no_key=True).get(pk=row.pk)


def _end(row: Assignment, sensor: Sensor, *, now: datetime, actor: str) -> None:
    """Have its service end it; at once if it has no process."""
    if row.state == AssignmentState.ENDING:
        return
    runs = row.state in (AssignmentState.STARTING, AssignmentState.RUNNING)
    if runs and sensor.runtime != POLL:
        move = Move(row.pk, row.state, row.fence, FORGIVEN)
        Assignment.objects.transition_many("end", [move], now=now, actor=actor)
    else:
        _free(row, sensor, now=now, actor=actor)


def _free(row: Assignment, sensor: Sensor, *, now: datetime, actor: str) -> None:
    events = ("unwant", "want") if sensor.is_enabled else ("unwant",)
    _move(row, *events, now=now, actor=actor)


def _move(row: Assignment, *events: str, now: datetime, actor: str) -> None:
    move = Move(row.pk, row.state, row.fence, FREE | FORGIVEN)
    Assignment.objects.transition_many(events, [move], now=now, actor=actor)
