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
from orchestrator.core.models import Action, Pack, Release
from orchestrator.core.models.catalog import forget_actions
from orchestrator.core.packs import breaking, releases
from orchestrator.core.packs.archives import Content
from orchestrator.core.packs.definitions import ActionDefinition, InvalidPack, PackDefinition, kinds
from orchestrator.core.packs.source import SourceProblem, Where

ACTION_FIELDS = [field.name for field in fields(ActionDefinition)]
PACK_FIELDS = ["version", "description", "path"]
KEPT_FIELDS = ["retired_at", "updated_at"]


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
    release: str = ""
    """The digest of its release; empty if its code is read from a path."""
    broken: tuple[str, ...] = ()
    """The content of other packs that was disabled, as it would have broken."""


@transaction.atomic
def install(
    definition: PackDefinition,
    *,
    now: datetime,
    principal: Principal | None = None,
    content: Content | None = None,
    accepts_breaking: bool = False,
) -> InstallReport:
    """Bring the database in line with the definition; installing it again changes nothing.

    With `content` it becomes a release, which each worker fetches, and which executions that are
    accepted from then on keep. Without, workers read the code at the definition's path, as it is
    when they run it. An action that left the pack is disabled, not deleted: its executions remain.
    So is other content. What an operator has disabled or enabled stays so.

    `principal`: whose permissions count; without one, Muster itself installs it. Raises
    PermissionMissing, RefTaken, InvalidPack with the places of what its content names and nobody
    has, the errors of the apps whose contents it has, and WouldBreak, unless `accepts_breaking`:
    then what would break is disabled, if the principal may disable it.
    """
    if principal is not None:
        authority.require(principal, "packs.install", Place(PACKS, definition.name))
    pack = _pack(definition, now)
    broken = breaking.find(definition)
    if broken and not accepts_breaking:
        raise breaking.WouldBreak(broken, seen_by=principal)
    refs = [action.ref for action in definition.actions]
    owned = {action.ref: action for action in pack.actions.select_for_update(no_key=True)}
    for action in Action.objects.filter(ref__in=refs).exclude(pack=pack).select_related("pack"):
        raise RefTaken(f"The action {action.ref} belongs to the pack {action.pack}.")

    new = [action for action in definition.actions if action.ref not in owned]
    kept = [action for action in definition.actions if action.ref in owned]
    changed = [action for action in kept if _change(owned[action.ref], action)]
    gone = [row for ref, row in owned.items() if ref not in refs and row.retired_at is None]
    for action in gone:
        action.enabled, action.retired_at = False, now
    touched = [*(owned[action.ref] for action in changed), *gone]
    for action in touched:
        action.updated_at = now
    Action.objects.bulk_create(Action(pack=pack, updated_at=now, **vars(item)) for item in new)
    Action.objects.bulk_update(touched, [*ACTION_FIELDS, *KEPT_FIELDS], batch_size=100)
    forget_actions()  # neither of the two above sends a signal
    report = ContentReport(
        created=_refs(new),
        updated=_refs(changed),
        unchanged=tuple(action.ref for action in kept if action not in changed),
        disabled=_refs(gone),
    )
    # before the other contents: those that run code, as sensors do, run that of the release
    release = _release(pack, definition, content, principal, now)
    for kind in kinds():
        values = definition.contents.get(kind.folder, ())
        try:
            report += kind.install(values, pack=pack, now=now, principal=principal)
        except ContentRefused as refused:
            raise InvalidPack(_placed(refused, kind, definition)) from None
    disabled = breaking.disable(broken, principal=principal, now=now)
    return InstallReport(
        pack=pack.name,
        version=pack.version,
        release=release.digest if release else "",
        broken=disabled,
        **vars(report),
    )


def _release(
    pack: Pack,
    definition: PackDefinition,
    content: Content | None,
    principal: Principal | None,
    now: datetime,
) -> Release | None:
    """Let new executions get the release of this content, or the code at the pack's path."""
    release = None
    if content is not None:
        by = principal.actor if principal else ""
        release = releases.keep(pack, definition, content, by=by, now=now)
    if pack.release_id != (release.pk if release else None):
        releases.retire(pack, now=now)
        pack.release, pack.installed_at = release, now
        pack.save(update_fields=["release", "installed_at"])
    return release


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
    values |= {"removed_at": None, "draining_since": None}
    if not created and any(getattr(pack, name) != value for name, value in values.items()):
        for name, value in values.items():
            setattr(pack, name, value)
        pack.installed_at = now
        pack.save()
    return pack


def _change(action: Action, definition: ActionDefinition) -> bool:
    """Copy the definition into the action; returns False if nothing differs."""
    differs = action.retired_at is not None
    action.retired_at = None
    for name in ACTION_FIELDS:
        value = getattr(definition, name)
        if name == "enabled" and action.enabled_override is not None:
            value = action.enabled_override
        if getattr(action, name) != value:
            setattr(action, name, value)
            differs = True
    return differs


def _refs(actions: list[ActionDefinition] | list[Action]) -> tuple[str, ...]:
    return tuple(action.ref for action in actions)
