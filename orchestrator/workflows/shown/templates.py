"""A template, as JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from orchestrator.core.shown.documents import Shown
from orchestrator.workflows.models import TaskTemplate
from orchestrator.workflows.shown import secrets
from orchestrator.workflows.task_templates import TemplateDefinition


class TemplateSummary(Shown):
    """A template as listings show it."""

    namespace: str
    name: str
    version: str
    description: str
    enabled: bool = Field(description="true if tasks may be requested of it.")
    pack: str | None
    installed_at: datetime


class TemplateDetail(TemplateSummary):
    """A template with its definition."""

    digest: str
    identity_strategy: str
    definition: dict[str, Any] = Field(
        description="Parameters with a name like password are `***`."
    )


def summary(template: TaskTemplate) -> TemplateSummary:
    """Convert a template, loaded with its pack."""
    return TemplateSummary(**_summary(template))


def detail(template: TaskTemplate) -> TemplateDetail:
    """Convert a template, with its definition."""
    return TemplateDetail(
        **_summary(template),
        digest=template.digest,
        identity_strategy=TemplateDefinition.of(template.definition).identity_strategy,
        definition=secrets.definition(template),
    )


def _summary(template: TaskTemplate) -> dict[str, Any]:
    names = ("namespace", "name", "version", "description", "enabled", "installed_at")
    pack = template.pack.name if template.pack else None
    return {name: getattr(template, name) for name in names} | {"pack": pack}
