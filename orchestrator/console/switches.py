"""Acts on rules, sensors, policies, the schedule, timers and events: each with a reason, which the
journal keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

from django.http import HttpRequest
from django.urls import reverse

from orchestrator.automation import reporting, rules, timers
from orchestrator.automation.models import Event, Rule, Sensor, Trigger
from orchestrator.automation.recalling import Recalled
from orchestrator.automation.rules import UnknownRule
from orchestrator.automation.sensors import catalogue
from orchestrator.automation.sensors.catalogue import UnknownSensor
from orchestrator.automation.triggers import UnknownTrigger
from orchestrator.console import acts, journal, row_acts
from orchestrator.console.acts import Dialog, Done
from orchestrator.console.look import Look
from orchestrator.console.row_acts import Dialogs, RowAct, RowActs, named
from orchestrator.core import authority, schedule
from orchestrator.core.authority import WHOLE
from orchestrator.policies import changes
from orchestrator.policies.models import Policy

EVERY_RULE = ""


OF_RULES = named(
    RowAct(
        "disable",
        lambda rule, look, _: rules.disable(rule.ref, now=look.now),
        "rules.enable",
        lambda rule: rule.is_enabled,
        "Disable {row}?",
        "No event that is evaluated from now on asks it. What it answered already goes on. "
        "Installing its pack again does not enable it.",
        "Disabled",
    ),
    RowAct(
        "enable",
        lambda rule, look, _: rules.enable(rule.ref, now=look.now),
        "rules.enable",
        lambda rule: rule.retired_at is None and not rule.is_enabled,
        "Enable {row}?",
        "Events that are evaluated from now on ask it, and it runs its action with the permissions "
        "of its owner. Old events do not ask it.",
        "Enabled",
    ),
)

OF_SENSORS = named(
    RowAct(
        "restart",
        lambda row, look, _: catalogue.restart(row.ref, now=look.now, actor=look.user.actor),
        "sensors.enable",
        lambda row: row.is_enabled,
        "Restart {row}?",
        "It is ended wherever it runs, and started again at once with its cursor. What it had "
        "reported and was not recorded, it reports again.",
        "Restarted",
    ),
    RowAct(
        "disable",
        lambda row, look, _: catalogue.disable(row.ref, now=look.now, actor=look.user.actor),
        "sensors.enable",
        lambda row: row.trigger_id is None and row.is_enabled,
        "Disable {row}?",
        "It is ended, and keeps its cursor. Installing its pack does not start it.",
        "Disabled",
    ),
    RowAct(
        "enable",
        lambda row, look, _: catalogue.enable(row.ref, now=look.now, actor=look.user.actor),
        "sensors.enable",
        lambda row: row.trigger_id is None and row.retired_at is None and not row.is_enabled,
        "Enable {row}?",
        "A sensor service starts it within a second, with its cursor.",
        "Enabled",
    ),
)

OF_POLICIES = named(
    RowAct(
        "disable",
        lambda row, look, _: changes.change(row.ref, {"enabled": False}, now=look.now),
        "policies.change",
        lambda row: row.enabled,
        "Disable {row}?",
        "It limits nothing any more: what waits for it starts.",
        "Disabled",
    ),
    RowAct(
        "enable",
        lambda row, look, _: changes.change(row.ref, {"enabled": True}, now=look.now),
        "policies.change",
        lambda row: not row.enabled,
        "Enable {row}?",
        "It limits what starts from now on. What runs already is counted, and goes on.",
        "Enabled",
    ),
)

OF_SCHEDULE = named(
    RowAct(
        "pause",
        lambda row, look, _: schedule.switch(row.name, is_on=False),
        "schedule.change",
        lambda row: row.enabled,
        "Pause {row}?",
        "Beat does not send it any more. If it is maintenance, nobody does its work until it goes "
        "on: no executor takes over, and every page says so.",
        "Paused",
    ),
    RowAct(
        "resume",
        lambda row, look, _: schedule.switch(row.name, is_on=True),
        "schedule.change",
        lambda row: not row.enabled,
        "Have {row} go on?",
        "Beat sends it again from its next time on. Times that it missed are not made up for.",
        "Goes on",
    ),
)

OF_TIMERS = named(
    RowAct(
        "run",
        lambda row, look, _: timers.fire_now(
            row, principal=look.user, now=look.now, token=look.token
        ),
        "events.send",
        lambda row: True,
        "Run {row} now?",
        "An event is recorded as if its time had come, and the enabled rules that wait for it are "
        "asked. Its next times stay as they are.",
        "Run by hand",
        label="Run now",
        has_token=True,
    ),
)


# --- dialogs -------------------------------------------------------------------------------------


def of_rule(rule: Rule, look: Look) -> Dialogs:
    return row_acts.dialogs(OF_RULES, rule, look, reverse("console:rule_act", args=[rule.ref]))


def of_sensor(row: Sensor, look: Look) -> Dialogs:
    return row_acts.dialogs(OF_SENSORS, row, look, reverse("console:sensor_act", args=[row.ref]))


def of_policy(row: Policy, look: Look) -> Dialogs:
    return row_acts.dialogs(OF_POLICIES, row, look, reverse("console:policy_act", args=[row.ref]))


def of_periodic_task(row: Any, look: Look) -> Dialogs:
    """Several of them are on one page: the id of a dialog has the row's."""
    url = reverse("console:periodic_act", args=[row.pk])
    return row_acts.dialogs(OF_SCHEDULE, row, look, url, row_id=f"-{row.pk}")


def of_timer(row: Trigger, look: Look) -> Dialogs:
    """Several of them are on one page: the id of a dialog has the trigger's."""
    url = reverse("console:timer_act", args=[row.pk])
    return row_acts.dialogs(OF_TIMERS, row, look, url, row_id=f"-{row.pk}")


def of_event(event: Event, recalled: Sequence[Recalled], look: Look) -> Dialog | None:
    """To ask a rule again about an event, or all of them; None for who may not."""
    if not look.may("events.send", event.place):
        return None
    enabled = [each.rule for each in recalled if each.rule.is_enabled]
    mine = [rule.ref for rule in enabled if rule.trigger_id == event.trigger_id]
    choices = [(ref, ref) for ref in mine]
    if len(mine) != 1:
        choices.insert(0, (EVERY_RULE, "every rule of its trigger"))
    return Dialog(
        id="replay",
        label="Ask again",
        button="Ask again",
        question="Ask again about this?",
        explanation="A new event with the same payload is recorded, which asks nobody else. What "
        "matches runs its action, as the rules are now.",
        url=reverse("console:replay", args=[event.pk]),
        hidden={"token": str(uuid4())},
        chooses="rule",
        choices=choices,
    )


# --- verbs ---------------------------------------------------------------------------------------


@acts.verb
def switch_rule(look: Look, request: HttpRequest, ref: str) -> Done:
    """Enable or disable a rule."""
    row = Rule.objects.filter(ref=ref).first()
    if row is None:
        raise UnknownRule(f"No rule is called {ref[:140]!r}")
    return _do(OF_RULES, row, look, request, reverse("console:rule", args=[ref]))


@acts.verb
def switch_sensor(look: Look, request: HttpRequest, ref: str) -> Done:
    """Enable, disable or restart a sensor."""
    row = Sensor.objects.filter(ref=ref).first()
    if row is None:
        raise UnknownSensor(f"No sensor is called {ref[:140]!r}")
    return _do(OF_SENSORS, row, look, request, reverse("console:sensor", args=[ref]))


@acts.verb
def switch_policy(look: Look, request: HttpRequest, ref: str) -> Done:
    """Enable or disable a policy."""
    authority.require(look.user, "policies.change", WHOLE)
    row = changes.find(ref)
    return _do(OF_POLICIES, row, look, request, reverse("console:policy", args=[ref]))


@acts.verb
def switch_periodic_task(look: Look, request: HttpRequest, id: int) -> Done:
    """Pause a row of beat's schedule, or have it go on."""
    from django_celery_beat.models import PeriodicTask

    authority.require(look.user, "schedule.change", WHOLE)
    row = PeriodicTask.objects.filter(pk=id).first()
    if row is None:
        raise schedule.UnknownPeriodicTask(f"The schedule has no row with the id {id}")
    return _do(OF_SCHEDULE, row, look, request, reverse("console:schedules"))


@acts.verb
def run_timer(look: Look, request: HttpRequest, id: int) -> Done:
    """Fire a timer by hand."""
    rows = Trigger.objects.select_related("type").filter(pk=id, timer__isnull=False)
    row = rows.first() if id < 2**63 else None
    if row is None:
        raise UnknownTrigger(f"No timer has the id {id}")
    return _do(OF_TIMERS, row, look, request, reverse("console:trigger", args=[id]))


def _do(known: RowActs, row: Any, look: Look, request: HttpRequest, url: str) -> Done:
    act, reason = row_acts.do(known, row, look, request)
    journal.note(request, row, f"{act.done}: {reason}")
    return Done(f"{act.done}: {row_acts.name_of(row)}.", url)


@acts.verb
def replay(look: Look, request: HttpRequest, id: UUID) -> Done:
    """Have one rule, or all of its trigger, asked about an event again; leads to the new event."""
    event = reporting.find(id)
    authority.require(look.user, "events.send", event.place)
    reason = acts.reason(request)
    ref = request.POST.get("rule", EVERY_RULE) or None
    if ref and not Rule.objects.visible_to(look.user).filter(ref=ref).exists():
        raise UnknownRule(f"No rule is called {ref[:140]!r}")
    # one form asks about any of them
    token = f"{look.token}:{ref or EVERY_RULE}" if look.token else ""
    recorded = reporting.replay(event, rule_ref=ref, principal=look.user, now=look.now, token=token)
    whom = ref or "every rule"
    journal.note(request, event, f"Asked {whom} again, by the event {recorded.event_id}: {reason}")
    url = reverse("console:event", args=[recorded.event_id])
    return Done(f"{whom} is asked about this new event.".capitalize(), url)
