"""Sensors and webhooks: who runs which sensor, how it does, and what was delivered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.http import HttpRequest

from orchestrator.automation.hook_paths import address_of
from orchestrator.automation.models import Sensor, SensorService, Webhook
from orchestrator.automation.sensors import catalogue, logs, services
from orchestrator.automation.sensors.catalogue import UnknownSensor
from orchestrator.automation.shown import sensors as shown
from orchestrator.automation.shown import webhooks as shown_webhooks
from orchestrator.automation.shown.sensors import SensorSummary
from orchestrator.console import access, draw, journal, paging, switches
from orchestrator.console.access import Context
from orchestrator.console.look import Look
from orchestrator.core import authority, words
from orchestrator.core.authority import PermissionMissing
from orchestrator.core.errors import NotFound
from orchestrator.core.words import Kind, kind_of

LOG_LINES = 100
CHANGES = 20
HOOKS_MAX = 200
SERVICES_MAX = 50


class UnknownWebhook(NotFound):
    """No webhook has this path."""


@dataclass(frozen=True)
class Row:
    """A sensor as lists show it."""

    sensor: Sensor
    out: SensorSummary
    now: datetime

    @property
    def kind(self) -> Kind:
        return state_kind(self.out.state)

    @property
    def lease(self) -> str:
        """Until when its service has it."""
        assigned = shown.assignment_of(self.sensor)
        until = assigned.lease_until if assigned else None
        return words.due(until, self.now)[0] if until else ""

    @property
    def last(self) -> str:
        at = self.out.last_event_at
        return f"{words.span((self.now - at).total_seconds())} ago" if at else ""


@dataclass(frozen=True)
class HookRow:
    """A webhook as lists show it; of its secrets nothing."""

    hook: Webhook
    taken: int
    refused: int
    last_at: datetime | None

    @property
    def address(self) -> str:
        return address_of(self.hook)


def state_kind(state: str) -> Kind:
    """One that runs is green, although other rows that run are not."""
    return Kind.SUCCESS if state == "running" else kind_of(state)


@access.page("sensors", needs="", topics="sensor,presence,trigger,clock")
def show_list(look: Look, request: HttpRequest) -> Context:
    """Sensors by name, the services that may run them, and webhooks."""
    may_see_sensors, may_see_hooks = look.may("sensors.read"), look.may("triggers.read")
    if not (may_see_sensors or may_see_hooks):
        raise PermissionMissing("sensors.read", "This page")
    context: Context = {"title": "Sensors", "here": "sensors", "listed": paging.Listed([])}
    if may_see_sensors:
        context |= _sensors(look, request)
    if may_see_hooks:
        context["hooks"] = _hooks(look)
        context["hooks_max"] = HOOKS_MAX if len(context["hooks"]) == HOOKS_MAX else 0
    return context


def _sensors(look: Look, request: HttpRequest) -> Context:
    visible = Sensor.objects.visible_to(look.user).in_use().select_related(*catalogue.RELATED)
    listed = paging.by_name(request, visible)
    alive = SensorService.objects.alive(look.now, services.lease_seconds())
    return {
        "may_see_sensors": True,
        "listed": listed,
        "rows": [Row(each, shown.summary(each), look.now) for each in listed.rows],
        "services": list(alive.order_by("name", "pk")[:SERVICES_MAX]),
    }


def _hooks(look: Look) -> Sequence[HookRow]:
    visible = Webhook.objects.visible_to(look.user).select_related("trigger__type")
    rows = visible.prefetch_related("deliveries").order_by("path")[:HOOKS_MAX]
    return [
        HookRow(
            each,
            *shown_webhooks.totals(each.deliveries.all()),
            last_at=max((count.last_at for count in each.deliveries.all()), default=None),
        )
        for each in rows
    ]


@access.page("sensor", needs="sensors.read", topics="sensor,presence,clock")
def show(look: Look, request: HttpRequest, ref: str) -> Context:
    """A sensor: who runs it, what happened to it, and the end of its log."""
    visible = Sensor.objects.visible_to(look.user).select_related(*catalogue.RELATED)
    sensor = visible.filter(ref=ref).first()
    if sensor is None:
        raise UnknownSensor(f"No sensor is called {ref[:140]!r}")
    assigned = shown.assignment_of(sensor)
    sees_contents = authority.may(look.user, authority.PAYLOADS, sensor.place)
    dialogs = switches.of_sensor(sensor, look)
    return {
        "title": sensor.ref,
        "here": "sensors",
        "sensor": sensor,
        "state": shown.state_of(sensor),
        "kind": state_kind(shown.state_of(sensor)),
        "situation": draw.facts(shown.situation(sensor, look.now), seen_by=look.user),
        "lease": words.due(assigned.lease_until, look.now)[0]
        if assigned and assigned.lease_until
        else "",
        "changes": shown.latest_changes(sensor, CHANGES),
        "sees_contents": sees_contents,
        "cursor": draw.json(assigned.cursor) if assigned and sees_contents else "",
        "log": _log(sensor) if sees_contents else "",
        "log_lines": LOG_LINES,
        "done": journal.lines(sensor),
        "dialogs": dialogs.allowed,
        "orders": dialogs.useful,
    }


def _log(sensor: Sensor) -> str:
    return draw.printable("\n".join(logs.read(sensor, lines=LOG_LINES)))


@access.page("hook", needs="triggers.read", topics="trigger,event,clock")
def show_hook(look: Look, request: HttpRequest, path: str) -> Context:
    """A webhook: where it is, who may send, and what became of deliveries. Secrets are named, never
    shown."""
    visible = Webhook.objects.visible_to(look.user).select_related("trigger__type")
    hook = visible.prefetch_related("deliveries").filter(path=path).first()
    if hook is None:
        raise UnknownWebhook(f"No webhook has the path {path[:140]!r}")
    return {
        "title": hook.path,
        "here": "sensors",
        "hook": hook,
        "situation": draw.facts(shown_webhooks.situation(hook), seen_by=look.user),
        "deliveries": [
            {
                "outcome": each.outcome,
                "kind": Kind.SUCCESS if shown_webhooks.is_taken(each.outcome) else Kind.WARNING,
                "meaning": shown_webhooks.in_words(each.outcome),
                "total": each.total,
                "last_at": each.last_at,
                "address": each.last_address,
                "detail": draw.printable(each.last_detail),
            }
            for each in hook.deliveries.all()
        ],
    }
