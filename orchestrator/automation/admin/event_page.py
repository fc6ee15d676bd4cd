"""The page of one event: what it is, and what each rule answered and why."""

from __future__ import annotations

from collections.abc import Iterator

from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from orchestrator.automation import recalling
from orchestrator.automation.admin import answers, tables
from orchestrator.automation.models import Enforcement, Event
from orchestrator.automation.recalling import Recalled
from orchestrator.automation.shown import events as shown
from orchestrator.core import authority
from orchestrator.core.admin import render
from orchestrator.core.admin.read_only import Section
from orchestrator.core.authority import Principal


def sections(event: Event, *, seen_by: Principal) -> list[Section]:
    """The boxes of an event's page."""
    payload = render.pretty_json(shown.payload(event, seen_by=seen_by))
    kind = "warning" if event.problem else "success" if event.matched else ""
    boxes = [
        Section(facts=render.facts(shown.situation(event, seen_by=seen_by)), kind=kind),
        Section(title="Payload", body=payload),
    ]
    if not authority.may(seen_by, "rules.read"):
        return boxes
    made = Enforcement.objects.visible_to(seen_by).filter(event=event).order_by("-pk")
    return [*boxes, tables.enforcements(made, seen_by=seen_by, q=event.pk), *_rules(event, seen_by)]


def _rules(event: Event, seen_by: Principal) -> Iterator[Section]:
    if event.problem:
        yield Section(title="Rules", body="None was asked, because of its problem.")
        return
    recalled = list(recalling.of_event(event, seen_by=seen_by))
    body = format_html_join("", "{}", ((_rule(event, each),) for each in recalled))
    when = "computed again from what they said then" if event.evaluated_at else "as they are now"
    title = f"Rules, criterion by criterion ({when})"
    if len(recalled) == recalling.RULE_LIMIT:
        body = format_html(
            '{}<p class="m-muted">Only {} rules are shown. Test the others on their pages.</p>',
            body,
            recalling.RULE_LIMIT,
        )
    yield Section(title=title, body=body or "Its trigger has no rule.")


def _rule(event: Event, each: Recalled) -> SafeString:
    """One rule: its answers then and now, and its criteria."""
    parts = [render.link_to(each.rule), str(each.revision)]
    if each.answer is not None:
        parts.append(answers.badge(each.answer))
    if each.enforcement is not None:
        parts.append(render.link_to(each.enforcement, each.enforcement.state))
    test = reverse("admin:automation_rule_test", args=[each.rule.pk])
    parts.append(render.link(f"{test}?event={event.pk}", "test it as it is now"))
    heading = format_html_join(" · ", "{}", ((part,) for part in parts))
    note = format_html('<p class="m-muted">{}</p>', each.note) if each.note else ""
    table = answers.leaves(each.answer) if each.answer is not None else ""
    return format_html('<h3 class="m-subtitle">{}</h3>{}{}', heading, note, table)
