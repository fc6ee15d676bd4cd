"""Task templates: list, install, show."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpResponse
from ninja import Body, Path, Query, Router

from orchestrator.core import cursors, packs
from orchestrator.core.api import pages, problems
from orchestrator.core.api.access import AuthenticatedRequest, needs
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


@router.get("", auth=needs("templates.read"), response=documented(422, _200=TemplatePage))
def list_templates(request: AuthenticatedRequest, query: Query[TemplateQuery]) -> HttpResponse:
    """Templates, the latest installed first, without `definition`."""
    refuse_unknown_parameters(request, TemplateQuery)
    wanted = query.model_dump(include={"namespace", "name", "enabled"}, exclude_none=True)
    visible = TaskTemplate.objects.visible_to(request.auth.principal)
    rows = visible.filter(**wanted).select_related("pack").defer("definition")
    templates, cursor = pages.newest_first(rows, query, key=cursors.whole_number)
    items = [shown.summary(template) for template in templates]
    return reply(TemplatePage(items=items, next=pages.link(request, cursor), next_cursor=cursor))


@router.post(
    "",
    auth=needs("templates.install"),
    response=documented(409, _200=TemplateDetail, _201=TemplateDetail),
)
def install_template(
    request: AuthenticatedRequest, definition: Body[dict[str, Any]]
) -> HttpResponse:
    """Install a template, its YAML as JSON: 201, or 200 if it is known.

    A version cannot change (409) once a task has run it, or if it belongs to a pack.
    """
    try:
        checked = task_templates.template_from_values(definition)
        report = task_templates.install_templates(
            [checked], now=request.auth.now, principal=request.auth.principal
        )
    except task_templates.InvalidTemplate as error:
        raise problems.invalid(
            FieldProblem(pointer=pointer(problem.where), message=_message(problem))
            for problem in error.problems
        ) from None
    except task_templates.UnknownNamespace as error:
        field = FieldProblem(pointer="/namespace_name", message=str(error))
        raise problems.invalid([field]) from None
    except task_templates.UnknownAction as error:
        raise problems.invalid([FieldProblem(pointer="/steps", message=str(error))]) from None
    names = checked["namespace_name"], checked["name"], checked["version"]
    template = _known(request, *names, permission="templates.install")
    return reply(
        shown.detail(template),
        status=201 if report.created else 200,
        location=f"{request.path}/{template.ref}",
    )


@router.get(
    "/{namespace}/{name}/{version}",
    auth=needs("templates.read"),
    response=documented(404, _200=TemplateDetail),
)
def get_template(
    request: AuthenticatedRequest, namespace: Name, name: Name, version: Name
) -> HttpResponse:
    """One version of a template, with its definition."""
    return reply(shown.detail(_known(request, namespace, name, version)))


def _message(problem: packs.SourceProblem) -> str:
    """The message without its path, which the pointer has already."""
    return problem.message.removeprefix(f"{'.'.join(map(str, problem.where))}: ")


def _known(
    request: AuthenticatedRequest,
    namespace: str,
    name: str,
    version: str,
    *,
    permission: str = "templates.read",
) -> TaskTemplate:
    template = (
        TaskTemplate.objects.visible_to(request.auth.principal, permission)
        .select_related("pack")
        .filter(namespace=namespace, name=name, version=version)
        .first()
    )
    if template is None:
        ref = f"{namespace}/{name}/{version}"
        raise problems.not_found(f"No template is called {ref[:140]!r}")
    return template
