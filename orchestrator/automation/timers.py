"""Timers: one event for each (trigger, time), whoever fires, and however many do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import structlog
from django.db import transaction

from orchestrator.automation import triggers
from orchestrator.automation.models import Rule, Timer, Trigger, TriggerType
from orchestrator.automation.problems import InvalidDocument
from orchestrator.automation.recording import NewEvent, Recorded, record_many
from orchestrator.automation.schedules import Schedule, Tick
from orchestrator.core import authority
from orchestrator.core.authority import Principal
from orchestrator.core.errors import Conflict
from orchestrator.core.models.maintenance import PROCESSES_DIFFER_BY

log = structlog.get_logger(__name__)

MOST_AT_ONCE = 500
ENOUGH_EVENTS = 5_000
"""Of one transaction: with so many, the other timers wait for the next one. PostgreSQL ends a
transaction in which a process computes for 10 s."""
SOURCE = "timer"


def fire_due(*, now: datetime) -> int:
    """Record the events of timers that are due, the longest overdue first, at most MOST_AT_ONCE
    timers; returns how many that were. Timers with much to catch up leave the others due.

    Any number of processes may do this at once: a timer that another one holds is left to it, and
    two that compute the same tick meet its key.
    """
    if not Timer.objects.due(now).exists():  # the usual case, and costs no transaction
        return 0
    with transaction.atomic():
        fired, news = _fire_some(_locked(now), now)
        if news:
            record_many(news, now=now, by_muster=True)
        _move_on(fired)
    return len(fired)


class NoRuleWaits(Conflict):
    """No enabled rule waits for this timer: nothing would answer it."""

    kind = "no-rule-waits"


def fire_now(trigger: Trigger, *, principal: Principal, now: datetime, token: str = "") -> Recorded:
    """Record an event of a timer by hand, as if a time of it had come: all rules that wait for it
    are asked. Its own times stay as they are. With the same token, it is done once. Raises
    PermissionMissing and NoRuleWaits."""
    authority.require(principal, "events.send", trigger.place)
    if not Rule.objects.enabled().filter(trigger=trigger).exists():
        raise NoRuleWaits(f"No enabled rule waits for {trigger}: nothing would answer")
    tick = Tick(now, missed=0)
    new = NewEvent(
        trigger=trigger,
        payload=_payload(triggers.schedule_of(trigger), tick, now),
        occurred_at=now,
        source=SOURCE,
        # what fires by itself is sent by nobody, and its key is its time
        sent_by=principal.actor,
        key=f"by hand:{token}" if token else None,
    )
    return record_many([new], now=now, by_muster=True)[0]


def _locked(now: datetime) -> list[Timer]:
    """Lock those that are due. There are three types of timers: each is read once."""
    timers = list(Timer.objects.due(now).locked(MOST_AT_ONCE).select_related("trigger"))
    types = TriggerType.objects.in_bulk({timer.trigger.type_id for timer in timers})
    for timer in timers:
        timer.trigger.type = types[timer.trigger.type_id]
    return timers


def next_due() -> datetime | None:
    """The time at which the next timer is due; None if none is."""
    waiting = Timer.objects.filter(next_fire_at__isnull=False).order_by("next_fire_at")
    return waiting.values_list("next_fire_at", flat=True).first()


def bring_forward(*, now: datetime) -> int:
    """Have timers that fired by a clock that was set back since go on from now; returns how many.
    The times that they have fired for are events already."""
    later = Timer.objects.filter(last_fired_at__gt=now + PROCESSES_DIFFER_BY)
    # due at once, when no tick is: then the next one is computed
    return later.filter(next_fire_at__isnull=False).update(last_fired_at=now, next_fire_at=now)


def _fire_some(timers: Iterable[Timer], now: datetime) -> tuple[list[Timer], list[NewEvent]]:
    """The first of these timers, until their events are enough, and these events."""
    fired: list[Timer] = []
    news: list[NewEvent] = []
    for timer in timers:
        if len(news) >= ENOUGH_EVENTS:
            break
        fired.append(timer)
        news += _fire(timer, now)
    return fired, news


def _fire(timer: Timer, now: datetime) -> Iterator[NewEvent]:
    """Set when the timer is due next, and yield the events of its ticks."""
    try:
        schedule = triggers.schedule_of(timer.trigger)
    except InvalidDocument as invalid:  # made by a release that allowed it
        log.error("timer cannot be used", trigger_id=timer.trigger_id, error=str(invalid))
        timer.next_fire_at = None
        return
    due = schedule.due(timer.last_fired_at, now)
    timer.next_fire_at = due.next_at
    for tick in due.ticks:
        timer.last_fired_at = tick.scheduled_at
        yield _event(timer, schedule, tick, now)


def _move_on(timers: list[Timer]) -> None:
    """Write when these locked timers fire next. `bulk_update` would take ten times as long, as it
    has a condition for each row and column."""
    Timer.objects.bulk_create(
        timers,
        update_conflicts=True,
        unique_fields=["trigger"],
        update_fields=["next_fire_at", "last_fired_at"],
    )


def _event(timer: Timer, schedule: Schedule, tick: Tick, now: datetime) -> NewEvent:
    return NewEvent(
        trigger=timer.trigger,
        payload=_payload(schedule, tick, now),
        key=schedule.key(tick.scheduled_at),
        occurred_at=tick.scheduled_at,
        source=SOURCE,
    )


def _payload(schedule: Schedule, tick: Tick, now: datetime) -> dict[str, Any]:
    return {
        "scheduled_at": tick.scheduled_at.isoformat(),
        "fired_at": now.isoformat(),
        "missed": tick.missed,
        "timezone": schedule.timezone,
    }
