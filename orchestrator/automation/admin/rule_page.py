"""The page of one rule: what it says, what it answered last, and what it said before."""

from __future__ import annotations

from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType

from orchestrator.automation.admin import tables
from orchestrator.automation.models import Enforcement, Rule
from orchestrator.automation.shown import rules as shown
from orchestrator.core.admin import render
from orchestrator.core.admin.read_only import Section

REVISION_LIMIT = 20
CHANGE_LIMIT = 10


def sections(rule: Rule) -> list[Section]:
    """The boxes of a rule's page."""
    newest = Enforcement.objects.filter(rule=rule).order_by("-pk")
    boxes = [
        Section(
            facts=render.facts(shown.situation(rule)),
            kind="success" if rule.is_enabled else "warning",
        ),
        tables.enforcements(newest, rule=rule.pk),
        _revisions(rule),
    ]
    return [*boxes, changes] if (changes := _changes(rule)) else boxes


def _revisions(rule: Rule) -> Section:
    made = rule.revisions.order_by("-number").values_list(
        "number", "action_ref", "made_by", "made_at", "description"
    )
    rows = [
        [number, action_ref, made_by, render.moment(made_at), render.message(description)]
        for number, action_ref, made_by, made_at, description in made[:REVISION_LIMIT]
    ]
    headers = ["Revision", "Action", "Made by", "Made", "Description"]
    return Section(title="Revisions", body=render.table(headers, rows))


def _changes(rule: Rule) -> Section | None:
    """What was done on this page, with the reasons."""
    entries = LogEntry.objects.filter(
        content_type=ContentType.objects.get_for_model(rule), object_id=str(rule.pk)
    ).select_related("user")
    rows = [
        [render.moment(each.action_time), each.user.get_username(), each.get_change_message()]
        for each in entries.order_by("-pk")[:CHANGE_LIMIT]
    ]
    if not rows:
        return None
    return Section(title="Done here", body=render.table(["At", "By", "What and why"], rows))
