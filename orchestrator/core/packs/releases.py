"""Releases: what a pack's folder becomes when it is installed.

content = archives.read(path)                      # a folder, or an archive of one
with releases.loaded(content, name=path) as definition:
    packs.install(definition, content=content, now=now)
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path

from orchestrator.core.errors import NotFound
from orchestrator.core.models import Action, Pack, Release, ReleaseAction
from orchestrator.core.packs import archives, definitions, entry_points, imported, store
from orchestrator.core.packs.archives import Content
from orchestrator.core.packs.definitions import ActionDefinition, InvalidPack, PackDefinition
from orchestrator.core.packs.runtimes import REQUIREMENTS
from orchestrator.core.packs.source import SourceProblem

DEFINED = tuple(field.name for field in fields(ActionDefinition) if field.name != "ref")
"""The fields of an action that a release keeps."""


ONLY_IMPORTED = (
    "its actions are found by importing its modules, which this process must not do without "
    "MUSTER_ACTION_USER: install it with manage.py pack install"
)
ONLY_INSTALLED = (
    "its actions are found by importing its modules, which needs the packages of its "
    "requirements.txt, and this process installs none: install it with manage.py pack install"
)


class UnknownPack(NotFound):
    """No pack of this name is installed."""


def find(name: str) -> Pack:
    """The installed pack of this name, with its release. Raises UnknownPack."""
    pack = Pack.objects.installed().select_related("release").filter(name=name).first()
    if pack is None:
        raise UnknownPack(f"No pack is called {name!r:.70}")
    return pack


@contextlib.contextmanager
def loaded(
    content: Content,
    *,
    name: str,
    path: str = "",
    may_import: bool = True,
    may_install: bool = True,
) -> Iterator[PackDefinition]:
    """The definition of the pack that has this content: read from a copy, so that what is checked
    is what is installed.

    `name`: its folder or archive, for problems; `path`: where that is. `may_import`: False refuses
    a pack with actions that only an import of its modules can find. `may_install`: False refuses
    one that needs packages of its own for that. Raises InvalidPack.
    """
    with tempfile.TemporaryDirectory(prefix="muster-pack-") as place:
        copy = Path(place).resolve() / content.folder
        # its modules may be imported as the user of actions
        Path(place).chmod(0o755)
        archives.write(content, copy, file_mode=0o644, folder_mode=0o755)
        try:
            for may, why in ((may_import, ONLY_IMPORTED), (may_install, ONLY_INSTALLED)):
                if not may and _needs(copy, why):
                    raise InvalidPack([SourceProblem(name, 0, 0, why)])
            definition = definitions.load(copy)
            if problems := list(_beside(definition, copy)):
                raise InvalidPack(problems)
        except InvalidPack as error:
            raise InvalidPack(_renamed(each, copy, name) for each in error.problems) from None
        notes = tuple(_renamed(each, copy, name) for each in definition.notes)
        yield replace(definition, path=path, notes=notes)


def _needs(copy: Path, why: str) -> bool:
    has_packages = why == ONLY_IMPORTED or (copy / REQUIREMENTS).is_file()
    return has_packages and imported.is_needed(copy)


def _renamed(problem: SourceProblem, copy: Path, name: str) -> SourceProblem:
    """The problem, with the place that its user knows."""
    message = problem.message.replace(str(copy), name)
    return replace(problem, file=problem.file.replace(str(copy), name, 1), message=message)


def _beside(definition: PackDefinition, copy: Path) -> Iterator[SourceProblem]:
    """Problems with modules of the pack's own package that the copy does not have: they would be
    found only where the folder is today."""
    for action in definition.actions:
        match = (
            entry_points.PYTHON.fullmatch(action.entry_point)
            if action.runtime == "python" and isinstance(action.entry_point, str)
            else None
        )
        if match is None or match["module"].partition(".")[0] != copy.name:
            continue
        if why := entry_points.missing("python", action.entry_point, folder=copy):
            yield SourceProblem(str(copy), 0, 0, f"{action.ref}: {why}")


def keep(
    pack: Pack, definition: PackDefinition, content: Content, *, by: str, now: datetime
) -> Release:
    """The release that this content makes, with its actions; called in the transaction of the
    installation, after these are there. The same content is the same release."""
    values = {
        "pack": pack,
        "version": definition.version,
        "folder": content.folder,
        "size": content.size,
        "files": len(content.files),
        "kept_in": store.chosen(),
    }
    release, is_new = Release.objects.get_or_create(
        digest=content.digest,
        defaults=values | {"installed_at": now, "installed_by": by},
    )
    if not is_new:
        # before its content is looked at: what tidies removes none while we have the row
        release = Release.objects.select_for_update().get(pk=release.pk)
    is_stored = not is_new and release.content_gone_at is None and store.is_whole(release)
    if not is_stored:
        store.keep(release, content)
    if is_new:
        _keep_actions(release, definition)
    # workers that could not fetch it try again at once when this time changes
    if not is_stored or pack.release_id != release.pk or release.retired_at:
        release.installed_at, release.installed_by = now, by
        release.retired_at = release.content_gone_at = None
        release.save()
    return release


def _keep_actions(release: Release, definition: PackDefinition) -> None:
    refs = {action.ref: action for action in definition.actions}
    ids = dict(Action.objects.filter(ref__in=refs).values_list("ref", "pk"))
    ReleaseAction.objects.bulk_create(
        ReleaseAction(
            release=release,
            action_id=ids[ref],
            definition={name: getattr(action, name) for name in DEFINED},
        )
        for ref, action in refs.items()
    )


def retire(pack: Pack, *, now: datetime) -> None:
    """Note since when the release that the pack has had is installed no more."""
    if pack.release_id is not None:
        Release.objects.filter(pk=pack.release_id, retired_at__isnull=True).update(retired_at=now)
