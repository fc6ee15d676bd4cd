"""Installation of a pack into the database."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import datetime

from django.db import transaction

from orchestrator.core import authority
from orchestrator.core.authority import Place, Principal
from orchestrator.core.errors import MusterError
from orchestrator.core.frame import PACKS, PackContent
from orchestrator.core.models import Action, Pack
from orchestrator.core.models.catalog import forget_actions
from orchestrator.core.packs.definitions import ActionDefinition, InvalidPack, PackDefinition, kinds
from orchestrator.core.packs.source import SourceProblem, Where

ACTION_FIELDS = [field.name for field in fields(ActionDefinition)]
PACK_FIELDS = ["version", "description", "path"]


class RefTaken(MusterError):
    """An action of this name belongs to another pack."""


@dataclass(frozen=True)
class ContentProblem:
    """One problem with a pack's content that only the installation finds."""

    names: tuple[str, ...]
    """The values of the keys that make up its file's name."""
    where: Where
    message: str


class ContentRefused(MusterError):
    """The pack's content has problems, and nothing of the pack was installed."""

    def __init__(self, problems: Iterable[ContentProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{'/'.join(p.names)}: {p.message}" for p in self.problems))


@dataclass(frozen=True)
class ContentReport:
    """The refs of installed contents, by outcome."""

    created: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()

    def __add__(self, other: ContentReport) -> ContentReport:
        names = [field.name for field in fields(ContentReport)]
        return ContentReport(*(getattr(self, name) + getattr(other, name) for name in names))


@dataclass(frozen=True, kw_only=True)
class InstallReport(ContentReport):
    """The refs of a pack's actions and other contents, by outcome."""

    pack: str
    version: str


@transaction.atomic
def install(
    definition: PackDefinition, *, now: datetime, principal: Principal | None = None
) -> InstallReport:
    """Bring the database in line with the definition; installing it again changes nothing.

    An action that left the pack is disabled, not deleted: its executions remain. So is other
    content. `principal`: whose permissions count; without one, Muster itself installs it. Raises
    PermissionMissing, RefTaken, InvalidPack with the places of what its content names and nobody
    has, and the errors of the apps whose contents it has.
    """
    if principal is not None:
        authority.require(principal, "packs.install", Place(PACKS, definition.name))
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
    report = ContentReport(
        created=_refs(new),
        updated=_refs(changed),
        unchanged=tuple(action.ref for action in kept if action not in changed),
        disabled=_refs(gone),
    )
    for kind in kinds():
        values = definition.contents.get(kind.folder, ())
        try:
            report += kind.install(values, pack=pack, now=now, principal=principal)
        except ContentRefused as refused:
            raise InvalidPack(_placed(refused, kind, definition)) from None
    return InstallReport(pack=pack.name, version=pack.version, **vars(report))


def _placed(
    refused: ContentRefused, kind: PackContent, definition: PackDefinition
) -> list[SourceProblem]:
    """The problems with their files and lines."""
    files = {
        tuple(file.at((key,)) for key in kind.name_keys): file
        for file in definition.files.get(kind.folder, ())
    }
    return [files[each.names].place(each.where, each.message) for each in refused.problems]


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
    """Copy the definition into the action; returns False if nothing differs."""
    differs = False
    for name in ACTION_FIELDS:
        value = getattr(definition, name)
        if getattr(action, name) != value:
            setattr(action, name, value)
            differs = True
    return differs


def _refs(actions: list[ActionDefinition] | list[Action]) -> tuple[str, ...]:
    return tuple(action.ref for action in actions)
