"""Task templates: what tasks can be requested of."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpResponse
from ninja import Body, Path, Query, Router

from orchestrator.core import cursors, packs
from orchestrator.core.api import pages, problems
from orchestrator.core.api.access import AuthenticatedRequest
from orchestrator.core.api.application import refuse_unknown_parameters
from orchestrator.core.api.problems import FieldProblem
from orchestrator.core.api.replies import documented, reply
from orchestrator.core.json_values import pointer
from orchestrator.workflows import task_templates
from orchestrator.workflows.models import TaskTemplate
from orchestrator.workflows.shown import templates as shown
from orchestrator.workflows.shown.templates import TemplateDetail, TemplateSummary

router = Router(tags=["templates"])

Name = Annotated[pages.Text, Path()]


class TemplatePage(pages.Page):
    items: list[TemplateSummary]


class TemplateQuery(pages.PageQuery):
    """Filters; all of them must hold."""

    namespace: pages.Text | None = None
    name: pages.Text | None = None
    enabled: bool | None = None


@router.get("", response=documented(422, _200=TemplatePage))
def list_templates(request: AuthenticatedRequest, query: Query[TemplateQuery]) -> HttpResponse:
    """Templates, the latest installed first. `definition` is on the page of each."""
    refuse_unknown_parameters(request, TemplateQuery)
    wanted = query.model_dump(include={"namespace", "name", "enabled"}, exclude_none=True)
    rows = TaskTemplate.objects.filter(**wanted).select_related("pack").defer("definition")
    found, cursor = pages.newest_first(rows, query, key=cursors.whole_number)
    items = [shown.summary(template) for template in found]
    return reply(TemplatePage(items=items, next=pages.link(request, cursor), next_cursor=cursor))


@router.post("", response=documented(409, _200=TemplateDetail, _201=TemplateDetail))
def install_template(
    request: AuthenticatedRequest, definition: Body[dict[str, Any]]
) -> HttpResponse:
    """Install a template, as its YAML would say it in JSON: 201, or 200 where it is known.

    What a version says is final once a task has run it: 409. So is a version of a pack's.
    """
    try:
        checked = task_templates.template_from_values(definition)
        report = task_templates.install_templates([checked], now=request.auth.now)
    except task_templates.InvalidTemplate as error:
        raise problems.invalid(
            FieldProblem(pointer=pointer(problem.where), message=_message(problem))
            for problem in error.problems
        ) from None
    except task_templates.UnknownAction as error:
        raise problems.invalid([FieldProblem(pointer="/steps", message=str(error))]) from None
    template = _known(checked["namespace_name"], checked["name"], checked["version"])
    return reply(
        shown.detail(template),
        status=201 if report.created else 200,
        location=f"{request.path}/{template.ref}",
    )


@router.get("/{namespace}/{name}/{version}", response=documented(404, _200=TemplateDetail))
def get_template(
    request: AuthenticatedRequest, namespace: Name, name: Name, version: Name
) -> HttpResponse:
    """One version of a template, whole."""
    return reply(shown.detail(_known(namespace, name, version)))


def _message(problem: packs.SourceProblem) -> str:
    """Without the way to it, which the pointer tells already."""
    return problem.message.removeprefix(f"{'.'.join(map(str, problem.where))}: ")


def _known(namespace: str, name: str, version: str) -> TaskTemplate:
    template = (
        TaskTemplate.objects.select_related("pack")
        .filter(namespace=namespace, name=name, version=version)
        .first()
    )
    if template is None:
        ref = f"{namespace}/{name}/{version}"
        raise problems.not_found(f"No template is called {ref[:140]!r}")
    return template
