"""Task templates: which there are, how their tasks went; and one of them with its graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q
from django.http import HttpRequest
from django.urls import reverse

from orchestrator.console import access, draw, paging
from orchestrator.console.access import Context
from orchestrator.console.kept import for_all
from orchestrator.console.look import Look
from orchestrator.console.pages.executions import executions_url
from orchestrator.console.pages.tasks import tasks_url
from orchestrator.console.paging import AGES
from orchestrator.core import words
from orchestrator.core.errors import NotFound
from orchestrator.core.search import term
from orchestrator.core.shown.values import At, Fact
from orchestrator.workflows import analytics
from orchestrator.workflows.analytics import StepPerformance, TemplatePerformance
from orchestrator.workflows.models import TaskTemplate
from orchestrator.workflows.shown import graph, graph_svg, secrets
from orchestrator.workflows.task_templates import TemplateDefinition
from orchestrator.workflows.task_templates.definitions import StepDefinition

ROWS_MAX = 200
WINDOW = "24h"
TASKS_MAX = 10_000
"""The newest tasks of the window that the numbers are about."""
TASKS_OF_ONE_MAX = 1_000
"""The newest tasks of one template that its numbers, and those of its steps, are about."""


class NoTemplate(NotFound):
    """No template has this name and version."""


@dataclass(frozen=True)
class Row:
    """A template as the list shows it."""

    template: TaskTemplate
    url: str
    tasks_url: str
    numbers: TemplatePerformance | None

    @property
    def success(self) -> str:
        return succeeded(self.numbers)

    @property
    def p50(self) -> str:
        return _span(self.numbers.duration_p50_seconds if self.numbers else None)

    @property
    def p95(self) -> str:
        return _span(self.numbers.duration_p95_seconds if self.numbers else None)


@dataclass(frozen=True)
class StepRow:
    """A step of a template, and how its executions went."""

    step: StepDefinition
    executions_url: str
    numbers: StepPerformance | None

    @property
    def attempts(self) -> str:
        retry = self.step.retry
        return str(retry.max_attempts) if retry.retryable else "1, not retryable"

    @property
    def condition(self) -> str:
        return "" if self.step.when is True else str(self.step.when)

    @property
    def limit(self) -> str:
        return _span(self.step.timeout_seconds)

    @property
    def success(self) -> str:
        numbers = self.numbers
        return f"{1 - numbers.failure_rate:.0%}" if numbers and numbers.executions else ""

    @property
    def p50(self) -> str:
        return _span(self.numbers.duration_p50_seconds if self.numbers else None)

    @property
    def p95(self) -> str:
        return _span(self.numbers.duration_p95_seconds if self.numbers else None)


@access.page("templates", needs="templates.read", topics="clock")
def show_list(look: Look, request: HttpRequest) -> Context:
    """Those whose name has the text of the address, and how the newest tasks of each went."""
    window, text = _window(request), paging.typed(request, "name")
    rows = TaskTemplate.objects.visible_to(look.user).defer("definition").select_related("pack")
    if text:
        rows = rows.filter(Q(namespace__icontains=text) | Q(name__icontains=text))
    found = list(rows.order_by("namespace", "name", "-pk")[: ROWS_MAX + 1])
    numbers = _performance(look, window, found[:ROWS_MAX])
    return {
        "title": "Templates",
        "here": "templates",
        "rows": [_row(each, window, numbers.get(each.pk)) for each in found[:ROWS_MAX]],
        "is_cut": len(found) > ROWS_MAX,
        "rows_max": ROWS_MAX,
        "tasks_max": TASKS_MAX,
        "has_numbers": look.may("analytics.read"),
        "name": text,
        "window": window,
        "windows": AGES,
    }


@access.page("template", needs="templates.read", topics="clock")
def show(look: Look, request: HttpRequest, namespace: str, name: str, version: str) -> Context:
    """Its graph, its steps with what they run and how that went, its definition."""
    template = _known(look, namespace, name, version)
    window = _window(request)
    definition = TemplateDefinition.of(template.definition)
    numbers, of_steps = _of_one(look, template, window)
    return {
        "title": template.ref,
        "here": "templates",
        "template": template,
        "row": _row(template, window, numbers),
        "facts": draw.facts(_facts(template, definition), seen_by=look.user),
        "steps": [
            StepRow(step, executions_url(term("action", step.action_ref)), of_steps.get(step.name))
            for step in definition.steps.values()
        ],
        "has_numbers": look.may("analytics.read", template.place),
        "tasks_max": TASKS_OF_ONE_MAX,
        "window": window,
        "windows": AGES,
        "definition": draw.json(secrets.definition(template)),
    } | _graph(template)


def _graph(template: TaskTemplate) -> Context:
    whole = graph.of_template(template)
    piled = graph.piled(whole)
    return {
        "picture": graph_svg.picture(
            piled, link=lambda node: f"#step-{node.name}" if node.count == 1 else ""
        ) if piled.nodes else "",
        "is_piled": len(piled.nodes) < len(whole.nodes),
    }  # fmt: skip


def _known(look: Look, namespace: str, name: str, version: str) -> TaskTemplate:
    rows = TaskTemplate.objects.filter(namespace=namespace, name=name, version=version)
    template = rows.select_related("pack").first()
    if template is None or not look.may("templates.read", template.place):
        raise NoTemplate(f"There is no template {namespace}/{name}/{version}")
    return template


def _facts(template: TaskTemplate, definition: TemplateDefinition) -> list[Fact]:
    return [
        ("Description", template.description),
        ("Pack", template.pack.name if template.pack else "none: installed without a pack"),
        ("May be requested", "yes" if template.enabled else "no: disabled"),
        ("The same task again", definition.identity_strategy),
        ("Releases", definition.release),
        ("Installed", At(template.installed_at)),
    ]


def _row(template: TaskTemplate, window: str, numbers: TemplatePerformance | None) -> Row:
    args = [template.namespace, template.name, template.version]
    return Row(
        template=template,
        url=reverse("console:template", args=args),
        tasks_url=tasks_url(template=template.ref, within=window),
        numbers=numbers,
    )


def succeeded(numbers: TemplatePerformance | None) -> str:
    """The share of those that completed, of those that completed or failed."""
    over = numbers.completed + numbers.failed if numbers else 0
    return f"{1 - numbers.failure_rate:.0%}" if numbers and over else ""


def _performance(
    look: Look, window: str, templates: Iterable[TaskTemplate]
) -> Mapping[int, TemplatePerformance]:
    """By template: the numbers of the newest tasks of a window. These templates are visible; here
    is asked whether the numbers of each are."""
    allowed = {each.pk for each in templates if look.may("analytics.read", each.place)}
    if not allowed:
        return {}
    since = _since(look, window)
    rows = for_all(
        f"templates.{window}", lambda: analytics.templates(since=since, newest=TASKS_MAX)
    )
    return {each.template_id: each for each in rows if each.template_id in allowed}


def _of_one(
    look: Look, template: TaskTemplate, window: str
) -> tuple[TemplatePerformance | None, Mapping[str, StepPerformance]]:
    """The numbers of the newest tasks of a template, and those of its steps by their names."""
    if not look.may("analytics.read", template.place):
        return None, {}
    since, newest = _since(look, window), TASKS_OF_ONE_MAX
    tasks = analytics.templates(since=since, newest=newest, template_id=template.pk)
    steps = analytics.steps(since=since, newest=newest, template_id=template.pk)
    return next(iter(tasks), None), {each.step: each for each in steps}


def _since(look: Look, window: str) -> datetime:
    return look.now - AGES[window]


def _window(request: HttpRequest) -> str:
    window = request.GET.get("within", WINDOW)
    return window if window in AGES else WINDOW


def _span(seconds: float | None) -> str:
    return "" if seconds is None else words.span(seconds)
