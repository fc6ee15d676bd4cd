"""Events from outside: what a caller may report, and what he may have asked again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from orchestrator.automation import replaying, rules, triggers
from orchestrator.automation.models import Event, Trigger, TriggerType
from orchestrator.automation.problems import InvalidDocument, nearest_or_all
from orchestrator.automation.recording import (
    EventsRefused,
    NewEvent,
    Recorded,
    record_many,
    require_room,
)
from orchestrator.automation.replaying import UnknownEvent
from orchestrator.core import authority, json_values
from orchestrator.core.authority import Place, Principal
from orchestrator.core.errors import Conflict, Refusal
from orchestrator.core.executions.checking import OWN_KEYS
from orchestrator.core.frame import PACKS


class RuleAsksOtherEvents(Conflict):
    """The rule belongs to another trigger than the event."""

    kind = "rule-asks-other-events"


class RuleIsDisabled(Conflict):
    """A disabled rule answers no event: enable it first, or test it."""

    kind = "rule-is-disabled"


@dataclass(frozen=True, kw_only=True)
class Report:
    """An event as a caller reports it."""

    trigger_type: str
    trigger_parameters: Mapping[str, Any] = field(default_factory=dict)
    payload: Mapping[str, Any] = field(default_factory=dict)
    key: str | None = None
    occurred_at: datetime | None = None
    correlation_id: str | None = None


def report_many(
    reports: Sequence[Report], *, source: str, principal: Principal, now: datetime
) -> list[Recorded]:
    """Record what a caller reports, all of it or none; the rows in the order of the reports.

    A trigger without parameters is made by its first event; one with parameters must exist, as
    nobody would listen to it. Raises PermissionMissing, EventsRefused with all problems,
    TooManyEvents and EventKeyFreed.
    """
    for ref in sorted({each.trigger_type for each in reports}):
        authority.require(principal, "events.send", Place.of_ref(PACKS, ref))
    require_room()
    refusals: list[Refusal] = []
    news: list[NewEvent] = []
    known: dict[tuple[str, str], Trigger] = {}
    for index, report in enumerate(reports):
        found = _Reading(report, known, now)
        refusals += [Refusal(index, *problem) for problem in found.problems()]
        if found.trigger is not None:
            news.append(_new(report, found.trigger, source, principal))
    if refusals:
        raise EventsRefused(refusals)
    return record_many(news, now=now)


def replay(
    event: Event, *, rule_ref: str | None, principal: Principal, now: datetime, token: str = ""
) -> Recorded:
    """Have rules asked about an event again: all of its trigger, or one. With the same token, it is
    done once. Raises PermissionMissing, UnknownRule, RuleAsksOtherEvents, RuleIsDisabled and
    EventsRefused."""
    authority.require(principal, "events.send", event.place)
    rule = None
    if rule_ref is not None:
        rule = rules.find(rule_ref)
        if rule.trigger_id != event.trigger_id:
            raise RuleAsksOtherEvents(
                f"The rule {rule} asks events of trigger {rule.trigger}, not of {event.trigger}"
            )
        if not rule.is_enabled:
            raise RuleIsDisabled(f"The rule {rule} is disabled: enable it first, or test it")
    return replaying.replay(event.pk, rule=rule, sent_by=principal.actor, now=now, token=token)


def find(event_id: UUID) -> Event:
    """The event with this id, with its trigger's type. Raises UnknownEvent."""
    rows = Event.objects.select_related("trigger__type").filter(pk=event_id)
    if (event := rows.first()) is None:
        raise UnknownEvent(f"No event has the id {event_id}")
    return event


class _Reading:
    """A report, with its trigger."""

    def __init__(
        self, report: Report, known: dict[tuple[str, str], Trigger], now: datetime
    ) -> None:
        self.report, self.known, self.now = report, known, now
        self.trigger: Trigger | None = None

    def problems(self) -> Iterator[tuple[str, str]]:
        report = self.report
        if report.key is not None and report.key.startswith(OWN_KEYS):
            yield "/key", f"keys that begin with {OWN_KEYS!r} are those of Muster itself"
        place = report.trigger_type, triggers.digest_of(report.trigger_parameters)
        try:
            self.trigger = self.known.get(place) or self._trigger()
        except InvalidDocument as invalid:
            for problem in invalid.problems:
                yield f"/trigger{json_values.pointer(problem.where)}", problem.message
        except triggers.UnknownTrigger as error:
            yield "/trigger", f"{error}{self._hint()}"
        else:
            self.known[place] = self.trigger

    def _trigger(self) -> Trigger:
        report = self.report
        if report.trigger_parameters:
            return triggers.find(report.trigger_type, report.trigger_parameters)
        return triggers.ensure(report.trigger_type, {}, now=self.now)

    def _hint(self) -> str:
        known = TriggerType.objects.filter(retired_at__isnull=True).values_list("ref", flat=True)
        wanted = self.report.trigger_type
        return "" if wanted in known else f"; {nearest_or_all(wanted, known)}"


def _new(report: Report, trigger: Trigger, source: str, principal: Principal) -> NewEvent:
    return NewEvent(
        trigger=trigger,
        payload=report.payload,
        key=report.key,
        occurred_at=report.occurred_at,
        correlation_id=report.correlation_id,
        source=source,
        sent_by=principal.actor,
    )
