"""The changes that the installation of a pack would make."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from orchestrator.core.models import Action, Pack
from orchestrator.core.packs import breaking, store
from orchestrator.core.packs.archives import Content, Corrupt
from orchestrator.core.packs.breaking import Broken
from orchestrator.core.packs.definitions import PackDefinition
from orchestrator.core.packs.releases import DEFINED

ADDED, CHANGED, REMOVED = "added", "changed", "removed"


@dataclass(frozen=True)
class Change:
    """One difference between what is installed and what would be."""

    what: str
    """`action`, `file`, or the noun of a folder of content."""
    name: str
    how: str
    """`added`, `changed` or `removed`."""
    details: tuple[str, ...] = ()
    """Of an action: the names of the fields that differ."""


@dataclass(frozen=True)
class Difference:
    """All that would change."""

    pack: str
    before: str
    """The version that is installed; empty if none is."""
    after: str
    release_before: str
    release_after: str
    changes: tuple[Change, ...] = ()
    broken: tuple[Broken, ...] = field(default=())
    """The content of other packs that would work no more."""

    @property
    def is_none(self) -> bool:
        return self.release_before == self.release_after and not self.changes


def between(definition: PackDefinition, content: Content) -> Difference:
    """Compare a pack with what is installed of it; changes nothing."""
    pack = Pack.objects.installed().select_related("release").filter(name=definition.name).first()
    release = pack.release if pack else None
    return Difference(
        pack=definition.name,
        before=pack.version if pack else "",
        after=definition.version,
        release_before=release.digest if release else "",
        release_after=content.digest,
        changes=(*_of_actions(definition), *_of_files(pack, content)),
        broken=tuple(breaking.find(definition)),
    )


def _of_actions(definition: PackDefinition) -> Iterator[Change]:
    rows = Action.objects.filter(pack__name=definition.name, retired_at__isnull=True)
    before = {row.ref: row for row in rows}
    for action in definition.actions:
        row = before.pop(action.ref, None)
        if row is None:
            yield Change("action", action.ref, ADDED)
            continue
        overridden = row.enabled_override is not None
        names = [name for name in DEFINED if not (name == "enabled" and overridden)]
        differ = tuple(name for name in names if getattr(row, name) != getattr(action, name))
        if differ:
            yield Change("action", action.ref, CHANGED, differ)
    for ref in sorted(before):
        yield Change("action", ref, REMOVED)


def _of_files(pack: Pack | None, content: Content) -> Iterator[Change]:
    """Of a pack that has no release, or whose content is not whole, all files are new."""
    before: dict[str, bytes] = {}
    if pack is not None and pack.release is not None:
        try:
            before = {file.path: file.line() for file in store.read(pack.release).files}
        except Corrupt:
            before = {}
    for file in content.files:
        line = before.pop(file.path, None)
        if line is None:
            yield Change("file", file.path, ADDED)
        elif line != file.line():
            yield Change("file", file.path, CHANGED)
    for path in sorted(before):
        yield Change("file", path, REMOVED)
