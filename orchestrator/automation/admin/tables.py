"""Tables that several pages of automation have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import models
from django.db.models import QuerySet
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from orchestrator.automation.models import Enforcement, Event, Rule
from orchestrator.automation.shown import enforcements as shown
from orchestrator.core.admin import render
from orchestrator.core.admin.read_only import Section
from orchestrator.core.authority import Principal
from orchestrator.core.models import Execution

ROW_LIMIT = 20
CHANGE_LIMIT = 10
Cells = Sequence[Sequence[Any]]


def enforcements(rows: QuerySet[Enforcement], *, seen_by: Principal, **filters: object) -> Section:
    """The newest of these enforcements, and a link to all if `filters` of the list find them."""
    listed = list(rows.select_related("rule", "event").defer("event__payload")[: ROW_LIMIT + 1])
    present = existing([row.execution_id for row in listed])
    headers = ["Enforcement", "State", "Rule", "Event", "Execution", "Why none", "Created"]
    cells = [
        [
            render.link_to(row, render.short_id(row.pk)),
            render.state_badge(row.state),
            render.link_to(row.rule),
            render.link_to(row.event, row.event.type_ref),
            execution(row, present),
            render.message(shown.why(row, seen_by=seen_by)),
            render.moment(row.created_at),
        ]
        for row in listed[:ROW_LIMIT]
    ]
    return _listed("Enforcements", headers, cells, len(listed), "enforcement", filters)


def events(rows: QuerySet[Event], **filters: object) -> Section:
    """The newest of these events."""
    listed = list(rows.defer("payload")[: ROW_LIMIT + 1])
    headers = ["Event", "Source", "Key", "Matched", "Received"]
    cells = [
        [
            render.link_to(row, render.short_id(row.pk)),
            row.source,
            row.dedup_key,
            answered(row),
            render.moment(row.received_at),
        ]
        for row in listed[:ROW_LIMIT]
    ]
    return _listed("Events", headers, cells, len(listed), "event", filters)


def _listed(
    title: str,
    headers: list[str],
    cells: Cells,
    found: int,
    model: str,
    filters: dict[str, object],
) -> Section:
    if not cells:
        return Section(title=title, body="none")
    table = render.table(headers, cells)
    if found <= ROW_LIMIT:
        return Section(title=title, body=table)
    url = reverse(f"admin:automation_{model}_changelist") + "?" + urlencode(filters)
    more = render.link(url, "show all of them")
    body = format_html('{}<p class="m-muted">The newest {}; {}.</p>', table, ROW_LIMIT, more)
    return Section(title=title, body=body)


def existing(ids: Iterable[UUID | None]) -> frozenset[UUID]:
    """Those of these executions that were not removed."""
    wanted = [id for id in ids if id is not None]
    if not wanted:
        return frozenset()
    return frozenset(Execution.objects.filter(pk__in=wanted).values_list("pk", flat=True))


def execution(row: Enforcement, present: frozenset[UUID]) -> SafeString | None:
    """A link to the execution of an enforcement, unless that was removed."""
    if row.execution_id is None:
        return None
    text = render.short_id(row.execution_id)
    if row.execution_id not in present:
        return format_html('{} <span class="m-muted">removed</span>', text)
    url = reverse("admin:orchestrator_execution_change", args=[row.execution_id])
    return render.link(url, text)


def answered(row: Event) -> str:
    """The number of rules that matched an event, or the reason why none was asked."""
    if row.problem:
        return row.why_not_asked
    return "not asked yet" if row.matched is None else f"{row.matched}"


def enabled_badge(rule: Rule) -> SafeString:
    """A badge that says if events ask a rule."""
    if rule.retired_at is not None:
        return render.badge("retired")
    return render.badge("enabled", "success") if rule.is_enabled else render.badge("disabled")


def done_here(row: models.Model) -> Section | None:
    """A section with what was done on the page of this row, with the reasons; None if nothing
    was."""
    entries = LogEntry.objects.filter(
        content_type=ContentType.objects.get_for_model(row), object_id=str(row.pk)
    ).select_related("user")
    rows = [
        [render.moment(each.action_time), each.user.get_username(), each.get_change_message()]
        for each in entries.order_by("-pk")[:CHANGE_LIMIT]
    ]
    if not rows:
        return None
    return Section(title="Done here", body=render.table(["At", "By", "What and why"], rows))
