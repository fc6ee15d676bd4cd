"""Presence of the code of installed packs on this host.

The folder of a pack that was installed without a release has to be on every host that runs its
actions, at the same path; releases come to each host by themselves (see `fetching`). Only what is
certainly missing is reported: a folder, a file, or a function that its file does not define.
Nothing is imported.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from orchestrator.core.models import Action
from orchestrator.core.models.catalog import WITHOUT_CODE
from orchestrator.core.packs import entry_points

UNEXPLAINED = "cannot be loaded: "
"""The start of a message about code that looks complete but failed to import."""


def missing_code(packs: Collection[str] | None = None) -> dict[str, str]:
    """The code of these packs, or of all, that this host lacks, with the reason: a pack by its
    name, or a single action by its ref."""
    actions = Action.objects.filter(enabled=True, pack__release__isnull=True)
    actions = actions.exclude(runtime__in=WITHOUT_CODE)
    if packs is not None:
        actions = actions.filter(pack__name__in=packs)
    missing: dict[str, str] = {}
    for pack, path, ref, runtime, entry_point in actions.values_list(
        "pack__name", "pack__path", "ref", "runtime", "entry_point"
    ):
        if pack in missing:
            continue
        if why := missing_folder(path):
            missing[pack] = why
        elif why := missing_entry_point(runtime, entry_point, pack_path=path):
            missing[ref] = why
    return missing


def missing_folder(pack_path: str) -> str:
    """The reason why the folder of a pack cannot be used on this host; empty if it can."""
    if os.path.isdir(pack_path):
        return ""
    what = "not a folder" if os.path.lexists(pack_path) else "no such folder"
    return f"{what}: {pack_path}"


def missing_entry_point(runtime: str, entry_point: str | list[str], *, pack_path: str) -> str:
    """The part of an action that the existing folder of its pack lacks, as text; empty if none."""
    return entry_points.missing(runtime, entry_point, folder=Path(os.path.abspath(pack_path)))
