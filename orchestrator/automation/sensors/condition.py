"""Sensors that are wanted and do not run, and why."""

from __future__ import annotations

from datetime import datetime, timedelta

from orchestrator.automation.models import Assignment, SensorService
from orchestrator.automation.sensors import services
from orchestrator.automation.sensors.assignments import FAILING, WINDOW
from orchestrator.automation.states import AssignmentState

MOST_NAMED = 20
GRACE = timedelta(seconds=40)
"""A lease and some seconds: so long it may take until another service has a sensor."""


def any_wanted() -> bool:
    """Return True if a sensor or a poll is to run, so that a sensor service is needed."""
    return Assignment.objects.wanted().exists()


def warnings(*, now: datetime) -> list[str]:
    """A line for each; see `frame.MusterApp.warnings`."""
    wanted = Assignment.objects.wanted().select_related("sensor").order_by("sensor__ref")
    lines = []
    for row in wanted.exclude(state=AssignmentState.RUNNING):
        recent = [at for at in row.failed_at if datetime.fromisoformat(at) > now - WINDOW]
        if len(recent) >= FAILING or row.failures >= FAILING:
            lines.append(f"sensor {row.sensor.ref}: fails again and again")
        elif row.state == AssignmentState.VACANT and row.changed_at < now - GRACE:
            lines.append(f"sensor {row.sensor.ref}: {_why_nobody(now)}")
    more = len(lines) - MOST_NAMED
    return [*lines[:MOST_NAMED], f"{more} more sensors do not run"] if more > 0 else lines


def _why_nobody(now: datetime) -> str:
    alive = SensorService.objects.alive(now, services.lease_seconds()).exists()
    return "no sensor service can run it" if alive else "no sensor service lives"
