"""The page of one rule: what it says, what it answered last, and what it said before."""

from __future__ import annotations

from orchestrator.automation.admin import tables
from orchestrator.automation.models import Enforcement, Rule
from orchestrator.automation.shown import rules as shown
from orchestrator.core.admin import render
from orchestrator.core.admin.read_only import Section
from orchestrator.core.authority import Principal

REVISION_LIMIT = 20


def sections(rule: Rule, *, seen_by: Principal) -> list[Section]:
    """The boxes of a rule's page."""
    newest = Enforcement.objects.filter(rule=rule).order_by("-pk")
    boxes = [
        Section(
            facts=render.facts(shown.situation(rule)),
            kind="success" if rule.is_enabled else "warning",
        ),
        tables.enforcements(newest, seen_by=seen_by, rule=rule.pk),
        _revisions(rule),
    ]
    return [*boxes, done] if (done := tables.done_here(rule)) else boxes


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
