"""Task templates: their graph, steps and definition."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from unfold.decorators import display

from orchestrator.core import words
from orchestrator.core.admin import render
from orchestrator.core.admin.read_only import ReadOnlyAdmin, Section
from orchestrator.core.authority import Principal
from orchestrator.workflows.admin import graph_box
from orchestrator.workflows.models import TaskTemplate
from orchestrator.workflows.shown import graph, secrets
from orchestrator.workflows.task_templates import TemplateDefinition
from orchestrator.workflows.task_templates.definitions import StepDefinition


@admin.register(TaskTemplate)
class TaskTemplateAdmin(ReadOnlyAdmin):
    view_permission = "templates.read"
    list_display = ("ref", "pack", "enabled", "description", "installed_at")
    list_select_related = ("pack",)
    list_filter = ("namespace", "enabled", ("pack", admin.RelatedOnlyFieldListFilter))
    list_filter_submit = False
    search_fields = ("namespace", "name", "description")

    @display(description="Template")
    def ref(self, template: TaskTemplate) -> str:
        return template.ref

    def get_queryset(self, request: HttpRequest) -> QuerySet[TaskTemplate]:
        queryset: QuerySet[TaskTemplate] = super().get_queryset(request)
        return queryset.select_related("pack")

    def sections(self, obj: TaskTemplate, now: datetime, *, seen_by: Principal) -> list[Section]:
        definition = TemplateDefinition.of(obj.definition)
        shown = graph.piled(graph.of_template(obj))
        tasks = f"{reverse('admin:workflows_task_changelist')}?template={obj.pk}"
        headers = ["Step", "Kind", "Action", "After", "Attempts", "When", "Time limit"]
        rows = [_row(step) for step in definition.steps.values()]
        facts = [
            ("Template", render.mono(obj.ref)),
            ("Description", obj.description),
            ("Pack", render.link_to(obj.pack) or "none: installed without a pack"),
            ("May be requested", "yes" if obj.enabled else "no: disabled"),
            ("The same task again", definition.identity_strategy),
            ("Installed", render.moment(obj.installed_at)),
            ("Tasks", render.link(tasks, "show them")),
        ]
        return [
            Section(facts=facts, kind="success" if obj.enabled else "warning"),
            Section(title="Graph", body=graph_box.drawn(shown, link=lambda _: "")),
            Section(title="Steps", body=render.table(headers, rows)),
            Section(title="Definition", body=render.pretty_json(secrets.definition(obj))),
        ]


def _row(step: StepDefinition) -> list[Any]:
    limit = "" if step.timeout_seconds is None else words.span(step.timeout_seconds)
    retry = step.retry
    return [
        step.name,
        step.kind,
        render.code(step.action_ref),
        ", ".join(step.parents),
        str(retry.max_attempts) if retry.retryable else "1, not retryable",
        "" if step.when is True else render.code(step.when),
        limit,
    ]
