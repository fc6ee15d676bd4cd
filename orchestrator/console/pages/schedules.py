"""Schedules: the rows of beat's schedule, the timers of rules, and one trigger with its events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, OuterRef, Subquery
from django.http import HttpRequest
from django.utils import timezone
from django_celery_beat.models import PeriodicTask

from orchestrator.automation.models import Enforcement, Event, Rule, Trigger
from orchestrator.automation.problems import InvalidDocument
from orchestrator.automation.shown import triggers as shown
from orchestrator.automation.triggers import UnknownTrigger
from orchestrator.console import access, draw, journal, switches
from orchestrator.console.access import Context
from orchestrator.console.acts import Dialog
from orchestrator.console.look import Look
from orchestrator.console.pages.enforcements import Row as Answered
from orchestrator.console.pages.enforcements import loaded, rows_of
from orchestrator.core import maintenance, schedule, words
from orchestrator.core.authority import PermissionMissing
from orchestrator.core.models import Tick
from orchestrator.core.shown.values import Prose
from orchestrator.core.words import Kind

NEXT = 3
LAST = 10
PERIODIC_MAX = TIMERS_MAX = 200
LATE_AFTER = 3
"""Intervals; see `alarms.LATE_AFTER`."""


@dataclass(frozen=True)
class Periodic:
    """A row of beat's schedule."""

    task: PeriodicTask
    ran_at: datetime | None
    """Of maintenance, whoever ran it; of others, what beat noted, which lags."""
    is_maintenance: bool
    next_times: Sequence[str]
    now: datetime
    orders: Sequence[Dialog]

    @property
    def runs(self) -> str:
        return str(self.task.scheduler)

    @property
    def does(self) -> Any:
        return draw.value(Prose(self.task.description))

    @property
    def state(self) -> str:
        if not self.task.enabled:
            return "paused"
        return "late" if self._is_late else "on"

    @property
    def kind(self) -> Kind:
        if not self.task.enabled:
            return Kind.WARNING if self.is_maintenance else Kind.PLAIN
        return Kind.DANGER if self._is_late else Kind.SUCCESS

    @property
    def ran(self) -> str:
        if self.ran_at is None:
            return "never"
        ago = f"{words.span((self.now - self.ran_at).total_seconds())} ago"
        return ago if self.is_maintenance else f"{ago}, or later"

    @property
    def _is_late(self) -> bool:
        every = self.task.interval
        if not self.is_maintenance or self.ran_at is None or every is None:
            return False
        run_every: timedelta = every.schedule.run_every
        return self.now - self.ran_at > LATE_AFTER * run_every


@dataclass(frozen=True)
class TimerRow:
    """A timer, and the rules that wait for it."""

    trigger: Trigger
    rules: Sequence[Rule]
    next_times: Sequence[str]
    last_at: datetime | None
    problem: str
    orders: Sequence[Dialog] = ()

    @property
    def parameters(self) -> str:
        return draw.printable(shown.parameters_line(self.trigger))

    @property
    def is_asleep(self) -> bool:
        timer = shown.timer_of(self.trigger)
        return timer is None or timer.next_fire_at is None


@access.page("schedules", needs="", topics="trigger,rule,event,clock")
def show(look: Look, request: HttpRequest) -> Context:
    """The schedules: what runs when, whoever sees to it; each part for whom it concerns."""
    may_see_beat, may_see_timers = look.may("schedule.read"), look.may("triggers.read")
    if not (may_see_beat or may_see_timers):
        raise PermissionMissing("schedule.read", "This page")
    periodic = _periodic(look) if may_see_beat else []
    timers = _timers(look) if may_see_timers else []
    return {
        "title": "Schedules",
        "here": "schedules",
        "may_see_beat": may_see_beat,
        "may_see_timers": may_see_timers,
        "periodic": periodic,
        "timers": timers,
        "periodic_max": PERIODIC_MAX if len(periodic) == PERIODIC_MAX else 0,
        "timers_max": TIMERS_MAX if len(timers) == TIMERS_MAX else 0,
        "dialogs": [
            *(d for row in periodic for d in switches.of_periodic_task(row.task, look).allowed),
            *(dialog for row in timers for dialog in row.orders),
        ],
    }


# --- beat ----------------------------------------------------------------------------------------


def _periodic(look: Look) -> list[Periodic]:
    related = ("interval", "crontab", "clocked", "solar")
    rows = PeriodicTask.objects.select_related(*related).order_by("enabled", "name")
    ticks = dict(Tick.objects.of_functions().values_list("name", "ran_at"))
    return [_row(row, ticks, look) for row in rows[:PERIODIC_MAX]]


def _row(row: PeriodicTask, ticks: Mapping[str, datetime], look: Look) -> Periodic:
    ran_at = ticks.get(row.name, row.last_run_at)
    times = schedule.next_times(row, NEXT, last=ran_at, now=look.now)
    return Periodic(
        task=row,
        ran_at=ran_at,
        is_maintenance=row.name in maintenance.functions(),
        next_times=_clocks(times, look.now),
        now=look.now,
        orders=switches.of_periodic_task(row, look).useful,
    )


def _clocks(times: Iterable[datetime], now: datetime) -> list[str]:
    """Moments in the time of the installation, as short as they can be understood."""
    today = timezone.localtime(now).date()
    local = [timezone.localtime(each) for each in times]
    return [f"{at:%H:%M:%S}" if at.date() == today else f"{at:%m-%d %H:%M}" for at in local]


# --- timers --------------------------------------------------------------------------------------


def _timers(look: Look) -> list[TimerRow]:
    """Those that fire next come first; those that sleep, last."""
    newest = Event.objects.filter(trigger=OuterRef("pk")).order_by("-pk").values("received_at")
    visible = Trigger.objects.visible_to(look.user).filter(timer__isnull=False)
    visible = visible.select_related("type", "timer").annotate(last_at=Subquery(newest[:1]))
    soonest = F("timer__next_fire_at").asc(nulls_last=True)
    triggers = list(visible.order_by(soonest, "pk")[:TIMERS_MAX])
    rules = _rules_of(look, triggers)
    return [_timer(each, rules.get(each.pk, []), look) for each in triggers]


def _rules_of(look: Look, triggers: Sequence[Trigger]) -> dict[int, list[Rule]]:
    """The rules of these triggers, in one query."""
    found: dict[int, list[Rule]] = {}
    if look.may("rules.read"):
        rows = Rule.objects.visible_to(look.user).filter(
            trigger__in=[each.pk for each in triggers], retired_at__isnull=True
        )
        for rule in rows[: 10 * TIMERS_MAX]:
            found.setdefault(rule.trigger_id, []).append(rule)
    return found


def _timer(trigger: Trigger, rules: Sequence[Rule], look: Look) -> TimerRow:
    now, timer = look.now, shown.timer_of(trigger)
    problem, times = "", []
    if timer is not None and timer.next_fire_at is not None:
        try:
            times = shown.next_ticks(trigger, NEXT, now=now)
        except InvalidDocument as invalid:  # made by a release that allowed it
            problem = f"its schedule cannot be used: {invalid!s:.200}"
    last_at: datetime | None = getattr(trigger, "last_at", None)
    orders = switches.of_timer(trigger, look).useful if timer is not None else ()
    return TimerRow(trigger, rules, _clocks(times, now), last_at, problem, orders)


# --- one trigger ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Happened:
    """An event of a trigger, and what rules answered."""

    event: Event
    answers: Sequence[Answered]


@access.page("trigger", needs="triggers.read", topics="trigger,rule,event,enforcement,clock")
def show_trigger(look: Look, request: HttpRequest, id: int) -> Context:
    """A trigger: what it is, who waits for it, when it fires next, and its last events with their
    results."""
    related = ("type", "timer", "webhook")
    rows = Trigger.objects.visible_to(look.user).select_related(*related).filter(pk=id)
    trigger = rows.first() if id < 2**63 else None
    if trigger is None:
        raise UnknownTrigger(f"No trigger has the id {id}")
    rules = _rules_of(look, [trigger]).get(trigger.pk, [])
    row = _timer(trigger, rules, look)
    is_timer = shown.timer_of(trigger) is not None
    return {
        "title": str(trigger),
        "here": "schedules" if is_timer else "events",
        "row": row,
        "is_timer": is_timer,
        "situation": draw.facts(shown.situation(trigger, look.now), seen_by=look.user),
        "happened": _happened(look, trigger) if look.may("events.read", trigger.place) else [],
        "last": LAST,
        "dialogs": row.orders,
        "done": journal.lines(trigger),
    }


def _happened(look: Look, trigger: Trigger) -> list[Happened]:
    """The last events, each with the answers of rules that the user may see."""
    events = list(Event.objects.filter(trigger=trigger).defer("payload").order_by("-pk")[:LAST])
    if not look.may("rules.read"):
        return [Happened(each, []) for each in events]
    visible = Enforcement.objects.visible_to(look.user)
    made = loaded(visible.filter(event__in=[each.pk for each in events]))
    by_event: dict[Any, list[Answered]] = {}
    for each in rows_of(look, made.order_by("-pk")[: 10 * LAST]):
        by_event.setdefault(each.enforcement.event_id, []).append(each)
    return [Happened(each, by_event.get(each.pk, [])) for each in events]
