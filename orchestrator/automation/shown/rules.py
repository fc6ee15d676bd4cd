"""A rule: as JSON, and as facts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from orchestrator.automation.models import Rule, RuleRevision
from orchestrator.core.redaction import redacted
from orchestrator.core.shown.documents import Shown
from orchestrator.core.shown.values import At, Fact, Json, Link, said


class RuleSummary(Shown):
    """A rule as listings show it."""

    ref: str
    pack: str | None
    description: str
    trigger_type: str
    trigger_id: int
    action_ref: str
    revision: int
    is_enabled: bool
    owner: str | None = Field(
        description="With whose permissions it runs its action; null is the installation itself."
    )
    retired_at: datetime | None


class RuleDetail(RuleSummary):
    """A rule with what it says."""

    trigger_parameters: dict[str, Any]
    criteria: dict[str, Any]
    parameters: dict[str, Any] = Field(
        description="Parameters with a name like password are `***`."
    )
    options: dict[str, Any]
    enabled_by_pack: bool
    enabled_override: bool | None = Field(description="As an operator said, whatever its pack.")
    made_by: str
    made_at: datetime


class RevisionShown(Shown):
    """The content of a rule from one change to the next."""

    number: int
    description: str
    criteria: dict[str, Any]
    action_ref: str
    parameters: dict[str, Any] = Field(
        description="Parameters with a name like password are `***`."
    )
    options: dict[str, Any]
    made_by: str
    made_at: datetime


def revision(row: RuleRevision) -> RevisionShown:
    """Convert a revision."""
    return RevisionShown.model_validate(
        {name: getattr(row, name) for name in RevisionShown.model_fields}
        | {"parameters": redacted(row.parameters)}
    )


def summary(rule: Rule) -> RuleSummary:
    """Convert a rule, as `rules.find` loads it."""
    return RuleSummary(**_summary(rule))


def detail(rule: Rule) -> RuleDetail:
    """Convert a rule with what it says, as `rules.find` loads it."""
    says = rule.current
    return RuleDetail(
        **_summary(rule),
        trigger_parameters=rule.trigger.parameters,
        criteria=says.criteria,
        parameters=redacted(says.parameters),
        options=says.options,
        enabled_by_pack=rule.enabled_by_pack,
        enabled_override=rule.enabled_override,
        made_by=says.made_by,
        made_at=says.made_at,
    )


def situation(rule: Rule) -> list[Fact]:
    """The facts of a rule: what it says, and whether events ask it."""
    says = rule.current
    return said(
        [
            ("Rule", rule.ref),
            ("Enabled", _why_enabled(rule)),
            ("Description", says.description),
            ("Trigger", Link(rule.trigger, str(rule.trigger))),
            ("Criteria", Json(says.criteria)),
            ("Action", says.action_ref),
            ("Parameters", Json(redacted(says.parameters))),
            ("Options", Json(says.options)),
            ("Revision", says.number),
            ("Owner", str(rule.owner) if rule.owner else "the installation"),
            ("Made by", says.made_by),
            ("Made", At(says.made_at)),
            ("Retired", At(rule.retired_at) if rule.retired_at else None),
        ]
    )


def _why_enabled(rule: Rule) -> str:
    if rule.retired_at is not None:
        return "no: it is no longer in its pack"
    by = "its definition" if rule.enabled_override is None else "an operator"
    return f"{'yes' if rule.is_enabled else 'no'}, says {by}"


def _summary(rule: Rule) -> dict[str, Any]:
    says = rule.current
    return {
        "ref": rule.ref,
        "pack": rule.pack.name if rule.pack else None,
        "description": says.description,
        "trigger_type": rule.trigger.type.ref,
        "trigger_id": rule.trigger_id,
        "action_ref": says.action_ref,
        "revision": says.number,
        "is_enabled": rule.is_enabled,
        "owner": str(rule.owner) if rule.owner else None,
        "retired_at": rule.retired_at,
    }
