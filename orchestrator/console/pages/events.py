"""Events: a list, and one of them with the answer of each rule, criterion by criterion."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.http import HttpRequest

from orchestrator.automation import listing, recalling
from orchestrator.automation.models import Enforcement, Event
from orchestrator.automation.models.events import SOURCES, EventQuerySet
from orchestrator.automation.recalling import Recalled
from orchestrator.automation.replaying import UnknownEvent
from orchestrator.automation.shown import enforcements as shown_enforcements
from orchestrator.automation.shown import events as shown
from orchestrator.console import access, criteria, draw, journal, paging, switches
from orchestrator.console.access import Context
from orchestrator.console.criteria import Verdict
from orchestrator.console.look import Look
from orchestrator.console.pages import causes
from orchestrator.console.pages.enforcements import execution_of
from orchestrator.core import cursors
from orchestrator.core.models import Execution
from orchestrator.core.words import Kind, kind_of
from orchestrator.rollups.causes import FAILED

RULES: dict[str, dict[str, Any]] = {
    "unasked": {"evaluated_at__isnull": True},
    "matched": {"matched__gt": 0},
    "unmatched": {"matched": 0},
}


@dataclass(frozen=True)
class Asked:
    """A rule that an event asked, and its answers, then and now."""

    recalled: Recalled
    verdict: Verdict | None
    why: str
    """The reason why there is no execution."""
    execution: Execution | None
    cause_url: str
    """Of the page of the cause of which it failed; empty for none."""

    @property
    def enforcement(self) -> Enforcement | None:
        return self.recalled.enforcement

    @property
    def kind(self) -> Kind:
        return kind_of(self.enforcement.state) if self.enforcement else Kind.PLAIN

    @property
    def execution_kind(self) -> Kind:
        return kind_of(self.execution.status) if self.execution else Kind.PLAIN


@access.page("events", needs="events.read", topics="event,clock")
def show_list(look: Look, request: HttpRequest) -> Context:
    """The newest that match the filters of the address."""
    query = paging.query_of(request)
    visible = Event.objects.visible_to(look.user).defer("payload")
    listed = paging.newest(request, *_matching(look, visible, query))
    return {
        "title": "Events",
        "here": "events",
        "listed": listed,
        "first": listed.first,
        "query": query,
        "is_filtered": paging.is_filtered(query),
        "sources": SOURCES,
        "ages": paging.AGES,
        "answers": RULES,
    }


def _matching(
    look: Look, rows: EventQuerySet, query: Mapping[str, str]
) -> tuple[EventQuerySet, EventQuerySet | None]:
    """Those that the filters mean, and what a filter without an index looks at. What a filter does
    not know, nothing matches."""
    age = paging.AGES.get(query.get("within", ""))
    trigger = query.get("trigger", "")
    number = paging.parsed(trigger, cursors.whole_number)
    if trigger and number is None:
        return rows.none(), None
    found, among = listing.events(
        rows,
        type=query.get("type"),
        trigger_id=number,
        source=query.get("source"),
        received_after=look.now - age if age else None,
    )
    answer = query.get("rules", "")
    if answer:
        found = found.filter(**RULES[answer]) if answer in RULES else found.none()
    if among is None and answer in ("matched", "unmatched"):
        among = Event.objects.all() if number is None else Event.objects.filter(trigger=number)
    return found, among


def found(look: Look, id: UUID, permission: str = "events.read") -> Event:
    """The event with this id, with its trigger's type. Raises UnknownEvent."""
    visible = Event.objects.visible_to(look.user, permission).select_related("trigger__type")
    event = visible.filter(pk=id).first()
    if event is None:
        raise UnknownEvent(f"No event has the id {id}")
    return event


@access.page("event", needs="events.read", topics="event,enforcement,execution,clock")
def show(look: Look, request: HttpRequest, id: UUID) -> Context:
    """An event: what it is, what each rule answered and why, and what came of that."""
    event = found(look, id)
    may_see_rules = look.may("rules.read")
    is_asked = may_see_rules and not event.problem
    recalled = list(recalling.of_event(event, seen_by=look.user)) if is_asked else []
    replay = switches.of_event(event, recalled, look)
    return {
        "title": event.type_ref,
        "here": "events",
        "event": event,
        "situation": draw.facts(shown.situation(event, seen_by=look.user), seen_by=look.user),
        "payload": draw.json(shown.payload(event, seen_by=look.user)),
        "may_see_rules": may_see_rules,
        "asked": _in_order(_asked(look, recalled)),
        "is_cut": len(recalled) == recalling.RULE_LIMIT,
        "rules_max": recalling.RULE_LIMIT,
        "done": journal.lines(event),
        "replay": replay,
        "askable": [ref for ref, _ in replay.choices] if replay else [],
    }


def _asked(look: Look, recalled: Sequence[Recalled]) -> Iterator[Asked]:
    ran = {
        each.enforcement.pk: execution_of(look, each.enforcement)
        for each in recalled
        if each.enforcement
    }
    failed = [each for each in ran.values() if each and each.status in FAILED]
    cause_urls = causes.urls_of(failed) if failed else {}
    for each in recalled:
        row = each.enforcement
        execution = ran[row.pk] if row else None
        yield Asked(
            each,
            criteria.verdict(each.answer) if each.answer else None,
            draw.printable(shown_enforcements.why(row, seen_by=look.user)) if row else "",
            execution,
            cause_urls.get(execution.pk, "") if execution else "",
        )


def _in_order(asked: Iterable[Asked]) -> list[Asked]:
    """Those that have answered, then those that match now."""
    return sorted(
        asked,
        key=lambda each: (
            each.enforcement is None,
            each.verdict is None or each.verdict.kind != Kind.SUCCESS,
        ),
    )
