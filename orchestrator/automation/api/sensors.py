"""Sensors: list, show, their logs; enable, disable, restart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from django.http import HttpResponse
from ninja import Path, Query, Router
from pydantic import BaseModel, Field

from orchestrator.automation.models import Sensor
from orchestrator.automation.sensors import catalogue, logs
from orchestrator.automation.shown import sensors as shown
from orchestrator.automation.shown.sensors import SensorDetail, SensorLogShown, SensorSummary
from orchestrator.automation.states import AssignmentState
from orchestrator.core import authority
from orchestrator.core.api import pages, problems
from orchestrator.core.api.access import AuthenticatedRequest, needs
from orchestrator.core.api.application import refuse_unknown_parameters
from orchestrator.core.api.replies import documented, reply

router = Router(tags=["sensors"])

Ref = Annotated[pages.Text, Path()]


class SensorPage(pages.Page):
    items: list[SensorSummary]


class SensorQuery(pages.PageQuery):
    """Filters; all of them must hold."""

    pack: pages.Text | None = Field(None, description="What their names begin with.")
    state: list[AssignmentState] = Field([], description="May be repeated; any of them matches.")
    retired: bool = Field(False, description="true to include those out of use.")


class LogQuery(BaseModel):
    lines: int = Field(200, ge=1, le=logs.LONGEST_LINES, description="The newest ones.")


@router.get("", auth=needs("sensors.read"), response=documented(422, _200=SensorPage))
def list_sensors(request: AuthenticatedRequest, query: Query[SensorQuery]) -> HttpResponse:
    """Sensors, by name."""
    refuse_unknown_parameters(request, SensorQuery)
    rows = Sensor.objects.visible_to(request.auth.principal).select_related(*catalogue.RELATED)
    if query.pack is not None:
        rows = rows.filter(ref__startswith=f"{query.pack}.")
    if query.state:
        rows = rows.filter(assignment__state__in=query.state)
    if not query.retired:
        rows = rows.in_use()
    found, cursor = pages.by_name(rows, query, field="ref")
    items = [shown.summary(row) for row in found]
    return reply(SensorPage(items=items, next=pages.link(request, cursor), next_cursor=cursor))


@router.get("/{ref}", auth=needs("sensors.read"), response=documented(404, _200=SensorDetail))
def get_sensor(request: AuthenticatedRequest, ref: Ref) -> HttpResponse:
    """One sensor: who runs it, how far it has come, why it ended last."""
    return _detail(request, known(request, ref))


@router.get(
    "/{ref}/log", auth=needs("sensors.read"), response=documented(404, 422, _200=SensorLogShown)
)
def get_sensor_log(request: AuthenticatedRequest, ref: Ref, query: Query[LogQuery]) -> HttpResponse:
    """The end of what it wrote to its standard error, keys masked; of at most 1 MiB that is kept.
    Needs `payloads.read`, as it may say what it found."""
    refuse_unknown_parameters(request, LogQuery)
    sensor = known(request, ref)
    authority.require(request.auth.principal, authority.PAYLOADS, sensor.place)
    return reply(SensorLogShown(lines=logs.read(sensor, lines=query.lines)))


@router.post(
    "/{ref}/restart", auth=needs("sensors.enable"), response=documented(404, 409, _200=SensorDetail)
)
def restart_sensor(request: AuthenticatedRequest, ref: Ref) -> HttpResponse:
    """End it wherever it runs, and start it again with its cursor, at once. 409 if it is
    disabled."""
    return _changed(request, ref, catalogue.restart)


@router.post(
    "/{ref}/enable", auth=needs("sensors.enable"), response=documented(404, 409, _200=SensorDetail)
)
def enable_sensor(request: AuthenticatedRequest, ref: Ref) -> HttpResponse:
    """Have it run, whatever its pack says. Safe to repeat. 409 for a poll, which follows the rules
    of its trigger."""
    return _changed(request, ref, catalogue.enable)


@router.post(
    "/{ref}/disable", auth=needs("sensors.enable"), response=documented(404, 409, _200=SensorDetail)
)
def disable_sensor(request: AuthenticatedRequest, ref: Ref) -> HttpResponse:
    """End it, and keep its cursor; outlives upgrades of its pack. Safe to repeat."""
    return _changed(request, ref, catalogue.disable)


def known(request: AuthenticatedRequest, ref: str, permission: str = "sensors.read") -> Sensor:
    """The sensor of this name; 404 if there is none for which the caller has the permission."""
    rows = Sensor.objects.visible_to(request.auth.principal, permission)
    sensor = rows.select_related(*catalogue.RELATED).filter(ref=ref).first()
    if sensor is None:
        raise problems.not_found(f"No sensor is called {ref[:140]!r}")
    return sensor


def _changed(request: AuthenticatedRequest, ref: str, verb: Callable[..., Sensor]) -> HttpResponse:
    known(request, ref, "sensors.enable")
    changed = verb(ref, now=request.auth.now, actor=request.auth.principal.actor)
    return _detail(request, changed)


def _detail(request: AuthenticatedRequest, sensor: Sensor) -> HttpResponse:
    assigned = shown.assignment_of(sensor)
    cursor = assigned.cursor if assigned else {}
    seen = authority.payload(cursor, of=sensor.place, seen_by=request.auth.principal)
    return reply(shown.detail(sensor, cursor=seen))
