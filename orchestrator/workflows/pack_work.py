"""The work of templates and tasks for packs and their releases."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import Q

from orchestrator.core.authority import Principal
from orchestrator.core.models import Action
from orchestrator.core.packs import Broken, NewVersion, problem_with
from orchestrator.workflows.models import Task, TaskTemplate
from orchestrator.workflows.states import TaskState
from orchestrator.workflows.task_templates import TemplateDefinition
from orchestrator.workflows.task_templates.definitions import LATEST, StepDefinition


def releases_of(definition: TemplateDefinition) -> dict[str, int] | None:
    """By pack, the releases that a task keeps that is requested now; None if there are none."""
    if definition.release == LATEST:
        return None
    refs = {step.action_ref for step in definition.steps.values()}
    packs = {action.pack for action in Action.objects.known_by_ref(refs).values()}
    return {pack.name: pack.release_id for pack in packs if pack.release_id is not None} or None


def needed_releases() -> set[int]:
    """The releases that steps of tasks may still ask for: of open ones, and of those in error,
    which can be repaired."""
    kept = Task.objects.filter(Q(ended_at__isnull=True) | Q(state=TaskState.ERROR))
    rows = kept.filter(releases__isnull=False).order_by().values_list("releases", flat=True)
    return {id for releases in rows.iterator() for id in (releases or {}).values()}


# --- templates that a new version of a pack would break ------------------------------------------


def broken(new: NewVersion) -> list[Broken]:
    """The templates of other packs that would work no more."""
    templates = TaskTemplate.objects.filter(enabled=True).select_related("pack")
    refs = Action.objects.filter(pack__name=new.pack)
    schemas = dict(refs.values_list("ref", "parameters_schema"))
    return [
        Broken("template", template.ref, why)
        for template in templates.order_by("namespace", "name", "version")
        if (template.pack.name if template.pack else "") != new.pack
        and (why := next(_problems(template, new, schemas), ""))
    ]


def _problems(
    template: TaskTemplate, new: NewVersion, schemas: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    for step in _steps(template):
        if not new.owns(step.action_ref) or step.action_ref not in schemas:
            continue
        action = new.actions.get(step.action_ref)
        if action is None:
            yield f"its step {step.name} runs {step.action_ref}, which is gone"
        elif why := problem_with(step.parameters, action, before=schemas[step.action_ref]):
            yield f"its step {step.name}: {why}"


def disable(refs: Collection[str], *, now: datetime) -> None:
    """Have no tasks requested of these templates."""
    for ref in refs:
        namespace, name, version = ref.split("/")
        rows = TaskTemplate.objects.filter(namespace=namespace, name=name, version=version)
        rows.update(enabled=False)


# --- tasks that need a pack ----------------------------------------------------------------------


def open_tasks(pack: str, principal: Principal | None, permission: str) -> list[str]:
    """The open tasks whose templates run actions of a pack, the oldest first."""
    used = [
        template.pk
        for template in TaskTemplate.objects.filter(tasks__ended_at__isnull=True).distinct()
        if any(_is_of(step, pack) for step in _steps(template))
    ]
    rows = Task.objects.open().filter(template__in=used).order_by("pk")
    if principal is not None:
        rows = rows.visible_to(principal, permission)
    return [str(pk) for pk in rows.values_list("pk", flat=True)]


def pause(pack: str, *, now: datetime) -> None:
    """Have no tasks requested of the pack's own templates."""
    TaskTemplate.objects.filter(pack__name=pack, enabled=True).update(enabled=False)


def _steps(template: TaskTemplate) -> Collection[StepDefinition]:
    environment: str = settings.MUSTER.environment
    return TemplateDefinition.of(template.definition, environment=environment).steps.values()


def _is_of(step: StepDefinition, pack: str) -> bool:
    return step.action_ref.partition(".")[0] == pack
