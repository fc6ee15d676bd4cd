"""Installation of task templates into the database."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction

from orchestrator.core import authority, spelling
from orchestrator.core.authority import Place, Principal
from orchestrator.core.errors import Conflict, MusterError
from orchestrator.core.frame import NAMESPACES
from orchestrator.core.models import Action, Pack
from orchestrator.core.packs import ContentReport
from orchestrator.workflows.models import TaskTemplate


class UnknownAction(MusterError):
    """A step names an action that is not installed."""


class UnknownNamespace(MusterError):
    """The caller may install no templates in this namespace."""


class TemplateTaken(Conflict):
    """A template of this name and version belongs to another pack, or to none."""

    kind = "template-taken"


class TemplateInUse(Conflict):
    """This version says something else, and tasks have run it: raise the version."""

    kind = "template-in-use"


@transaction.atomic
def install_templates(
    definitions: Sequence[Mapping[str, Any]],
    *,
    pack: Pack | None = None,
    now: datetime,
    principal: Principal | None = None,
) -> ContentReport:
    """Bring the database in line with these checked templates, all of them or none.

    `pack`: the owner; its templates that are not among these are disabled. `principal`: whose
    permissions count; actions beyond its reach are unknown. Raises UnknownNamespace, UnknownAction,
    TemplateTaken, and TemplateInUse: a version is final once a task has run it.
    """
    if principal is not None:
        _refuse_namespaces_of_others(definitions, principal)
    _refuse_unknown_actions(definitions, principal)
    owned = TaskTemplate.objects.select_for_update()
    names = {definition["name"] for definition in definitions}
    known = {_key(template): template for template in owned.filter(name__in=names)}
    created, updated, unchanged, new = [], [], [], []
    for definition in definitions:
        template = _template(definition, pack, now)
        present = known.get(_key(template))
        if present is None:
            new.append(template)
            created.append(template.ref)
        elif present.pack_id != template.pack_id:
            raise TemplateTaken(
                f"The template {present.ref} belongs to {present.pack or 'no pack'}."
            )
        elif present.digest == template.digest and present.enabled:
            unchanged.append(present.ref)
        else:
            _change(present, template)
            updated.append(present.ref)
    TaskTemplate.objects.bulk_create(new)
    disabled = _disable(pack, [*created, *updated, *unchanged]) if pack else []
    return ContentReport(tuple(created), tuple(updated), tuple(unchanged), tuple(disabled))


def digest_of(definition: Mapping[str, Any]) -> str:
    """Return a digest that is equal for two templates only if their content is equal."""
    return hashlib.sha256(json.dumps(definition, sort_keys=True).encode()).hexdigest()


def _change(present: TaskTemplate, template: TaskTemplate) -> None:
    if present.digest != template.digest and present.tasks.exists():
        raise TemplateInUse(
            f"{present.ref} says something else, and tasks have run it: raise its version."
        )
    for name in ("description", "definition", "digest", "enabled", "installed_at"):
        setattr(present, name, getattr(template, name))
    present.save()


def _disable(pack: Pack, kept: list[str]) -> list[str]:
    gone = [each for each in pack.templates.filter(enabled=True) if each.ref not in kept]
    TaskTemplate.objects.filter(pk__in=[each.pk for each in gone]).update(enabled=False)
    return [each.ref for each in gone]


def _template(definition: Mapping[str, Any], pack: Pack | None, now: datetime) -> TaskTemplate:
    return TaskTemplate(
        pack=pack,
        namespace=definition["namespace_name"],
        name=definition["name"],
        version=definition["version"],
        description=definition.get("description", ""),
        definition=definition,
        digest=digest_of(definition),
        installed_at=now,
    )


def _key(template: TaskTemplate) -> tuple[str, str, str]:
    return template.namespace, template.name, template.version


def _refuse_namespaces_of_others(
    definitions: Iterable[Mapping[str, Any]], principal: Principal
) -> None:
    for namespace in sorted({definition["namespace_name"] for definition in definitions}):
        if not authority.may(principal, "templates.install", Place(NAMESPACES, namespace)):
            raise UnknownNamespace(f"you may install no templates in the namespace {namespace!r}")


def _refuse_unknown_actions(
    definitions: Iterable[Mapping[str, Any]], principal: Principal | None
) -> None:
    wanted: dict[str, str] = {}
    for definition in definitions:
        overrides = definition.get("environments", {}).values()
        steps = [(step["name"], step) for step in definition["steps"]]
        steps += [item for each in overrides for item in each.get("steps", {}).items()]
        for name, step in steps:
            if ref := step.get("action") or step.get("handler"):
                wanted.setdefault(ref, f"{definition['name']}, step {name}")
    visible = Action.objects.all() if principal is None else Action.objects.visible_to(principal)
    known = set(visible.filter(ref__in=wanted).values_list("ref", flat=True))
    missing = [ref for ref in wanted if ref not in known]
    if missing:
        every = list(visible.values_list("ref", flat=True))
        raise UnknownAction("\n".join(_message(ref, wanted[ref], every) for ref in missing))


def _message(ref: str, where: str, known: list[str]) -> str:
    near = spelling.near(ref, known)
    hint = f", did you mean {near!r}?" if near else ""
    return f"{where}: no action is called {ref!r}{hint}"
