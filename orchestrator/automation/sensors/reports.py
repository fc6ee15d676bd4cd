"""The reports of a sensor: recorded together with its cursor, if the fence is still the same."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import F

from orchestrator.automation import triggers
from orchestrator.automation.models import Assignment, Trigger
from orchestrator.automation.models.sensors import POLL
from orchestrator.automation.problems import InvalidDocument
from orchestrator.automation.recording import NewEvent, record_accepted
from orchestrator.automation.sensors.assignments import Lease
from orchestrator.automation.states import REPORTS
from orchestrator.core import json_values
from orchestrator.core.errors import MusterError
from orchestrator.core.executions.checking import OWN_KEYS

MOST_AT_ONCE = 100
CURSOR_BYTES = 1_048_576
SOURCE = "sensor"


class LeaseLost(MusterError):
    """Another service has the sensor now, or it is not wanted any more: nothing was written."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """An event as a sensor reports it."""

    trigger: str | int
    """A type without parameters, or the number of a trigger."""
    payload: Mapping[str, Any] = field(default_factory=dict)
    key: str | None = None
    occurred_at: datetime | None = None


def record(
    lease: Lease,
    reports: Sequence[Report],
    *,
    cursor: Mapping[str, Any] | None = None,
    refused: int = 0,
    now: datetime,
) -> list[str]:
    """Record at most MOST_AT_ONCE events and the cursor after the last of them, in one transaction;
    what was refused, one text each.

    An event that is refused does not keep the others from being recorded: it would come again for
    ever. `refused` counts lines that were none. Raises LeaseLost, and then nothing was written.
    """
    refusals, news = _read(lease, reports, now)
    if cursor is not None and (fault := cursor_fault(cursor)):
        refusals.append(f"the cursor {fault}; the one before it stays")
        cursor = None
    with transaction.atomic():
        _pass_fence(lease, {} if cursor is None else {"cursor": dict(cursor)})
        is_own = lease.sensor.runtime == POLL
        recorded, more = record_accepted(news, now=now, by_muster=is_own)
        refusals += [f"{each.pointer} {each.message}" for each in more]
        _count(lease, len(recorded), refused + len(refusals), now)
    return refusals


def cursor_fault(cursor: Mapping[str, Any]) -> str:
    """Say why a cursor cannot be stored; empty if it can."""
    for place, what in json_values.faults(dict(cursor)):
        return f"{place or 'as a whole'} {what}"
    size = len(json.dumps(cursor))
    return "" if size <= CURSOR_BYTES else f"has {size:,} bytes, at most {CURSOR_BYTES:,} are kept"


def _pass_fence(lease: Lease, values: Mapping[str, Any]) -> None:
    """Write these values. Whoever wants to take the sensor waits from here to the commit."""
    rows = Assignment.objects.filter(pk=lease.assignment_id, fence=lease.fence, state__in=REPORTS)
    if not rows.update(**values or {"fence": F("fence")}):
        raise LeaseLost


def _count(lease: Lease, events: int, refused: int, now: datetime) -> None:
    if events or refused:
        values = {"last_event_at": now} if events else {}
        Assignment.objects.filter(pk=lease.assignment_id).update(
            events=F("events") + events, refused=F("refused") + refused, **values
        )


def _read(
    lease: Lease, reports: Sequence[Report], now: datetime
) -> tuple[list[str], list[NewEvent]]:
    refusals, news = [], []
    known: dict[str | int, Trigger] = {}
    for report in reports:
        try:
            trigger = known.get(report.trigger) or _trigger(lease, report.trigger, now)
        except _Undeclared as error:
            refusals.append(str(error))
            continue
        if report.key is not None and report.key.startswith(OWN_KEYS):
            refusals.append(f"/key keys that begin with {OWN_KEYS!r} are those of Muster itself")
            continue
        known[report.trigger] = trigger
        news.append(_new(lease, report, trigger))
    return refusals, news


class _Undeclared(MusterError):
    """The sensor may not report events of this trigger."""


def _trigger(lease: Lease, wanted: str | int, now: datetime) -> Trigger:
    declared = lease.sensor.trigger_types
    if isinstance(wanted, str) and wanted in declared:
        try:
            return triggers.ensure(wanted, {}, now=now)
        except InvalidDocument as invalid:
            raise _Undeclared(f"/trigger {invalid}") from None
    if isinstance(wanted, int):
        found = Trigger.objects.filter(pk=wanted, type__ref__in=declared).select_related("type")
        if trigger := found.first():
            return trigger
    raise _Undeclared(
        f"/trigger expected one of {', '.join(declared)}, which the sensor declares, "
        f"or the number of such a trigger, found {wanted!r:.140}"
    )


def _new(lease: Lease, report: Report, trigger: Trigger) -> NewEvent:
    return NewEvent(
        trigger=trigger,
        payload=report.payload,
        key=report.key,
        occurred_at=report.occurred_at,
        source=SOURCE,
        sent_by=f"sensor:{lease.sensor.ref}",
    )
