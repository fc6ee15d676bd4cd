"""A pack into the database: what is new, what changed, what left."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime

from django.db import transaction

from orchestrator.errors import MusterError
from orchestrator.models import Action, Pack
from orchestrator.models.catalog import forget_actions
from orchestrator.packs.definitions import ActionDefinition, PackDefinition
from orchestrator.packs.template_installation import install_templates

ACTION_FIELDS = [field.name for field in fields(ActionDefinition)]
PACK_FIELDS = ["version", "description", "path"]


class RefTaken(MusterError):
    """An action of this name belongs to another pack."""


@dataclass(frozen=True)
class InstallReport:
    """The refs of a pack's actions and task templates, by what became of them."""

    pack: str
    version: str
    created: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()


@transaction.atomic
def install(definition: PackDefinition, *, now: datetime) -> InstallReport:
    """Make the database say what the definition says; installing it again changes nothing.

    An action that left the pack is disabled, not deleted: its executions remain. So is a template.
    Raises RefTaken, and for a template UnknownAction, TemplateTaken and TemplateInUse.
    """
    pack = _pack(definition, now)
    refs = [action.ref for action in definition.actions]
    owned = {action.ref: action for action in pack.actions.select_for_update()}
    for action in Action.objects.filter(ref__in=refs).exclude(pack=pack).select_related("pack"):
        raise RefTaken(f"The action {action.ref} belongs to the pack {action.pack}.")

    new = [action for action in definition.actions if action.ref not in owned]
    kept = [action for action in definition.actions if action.ref in owned]
    changed = [action for action in kept if _change(owned[action.ref], action)]
    gone = [action for ref, action in owned.items() if ref not in refs and action.enabled]
    for action in gone:
        action.enabled = False
    touched = [*(owned[action.ref] for action in changed), *gone]
    for action in touched:
        action.updated_at = now
    Action.objects.bulk_create(Action(pack=pack, updated_at=now, **vars(item)) for item in new)
    Action.objects.bulk_update(touched, [*ACTION_FIELDS, "updated_at"], batch_size=100)
    forget_actions()  # neither of the two above sends a signal
    templates = install_templates(definition.templates, pack=pack, now=now)
    return InstallReport(
        pack=pack.name,
        version=pack.version,
        created=_refs(new) + templates.created,
        updated=_refs(changed) + templates.updated,
        unchanged=tuple(a.ref for a in kept if a not in changed) + templates.unchanged,
        disabled=_refs(gone) + templates.disabled,
    )


def _pack(definition: PackDefinition, now: datetime) -> Pack:
    values = {name: getattr(definition, name) for name in PACK_FIELDS}
    pack, created = Pack.objects.select_for_update().get_or_create(
        name=definition.name, defaults=values | {"installed_at": now}
    )
    if not created and any(getattr(pack, name) != value for name, value in values.items()):
        for name, value in values.items():
            setattr(pack, name, value)
        pack.installed_at = now
        pack.save()
    return pack


def _change(action: Action, definition: ActionDefinition) -> bool:
    """Take over what the definition says; False if the action says so already."""
    differs = False
    for name in ACTION_FIELDS:
        value = getattr(definition, name)
        if getattr(action, name) != value:
            setattr(action, name, value)
            differs = True
    return differs


def _refs(actions: list[ActionDefinition] | list[Action]) -> tuple[str, ...]:
    return tuple(action.ref for action in actions)
