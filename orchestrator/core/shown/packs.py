"""Packs and their releases, as every face shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from orchestrator.core.models import Pack, Release
from orchestrator.core.shown.documents import Shown

INSTALLED, OLD, GONE = "installed", "kept", "removed"


class PackSummary(Shown):
    """A pack as listings show it."""

    name: str
    version: str
    description: str
    path: str = Field(description="The folder or archive that it was installed from.")
    release: str = Field(
        description="The digest of its release; empty if workers read its code from the path."
    )
    installed_at: datetime
    draining_since: datetime | None = Field(
        description="Since when it takes no requests, as it is being removed."
    )


class PackAction(Shown):
    """An action of a pack, in short."""

    ref: str
    runtime: str
    isolation: str
    description: str
    enabled: bool
    dangerous: bool


class PackDetail(PackSummary):
    """A pack with its actions."""

    actions: list[PackAction]


class ReleaseOut(Shown):
    """A release of a pack."""

    digest: str
    version: str
    state: str = Field(
        description="`installed`; `kept` if it is not, but its content is there; `removed`."
    )
    installed_at: datetime
    installed_by: str
    retired_at: datetime | None
    files: int
    size: int = Field(description="Bytes of all files together.")


def summary(pack: Pack) -> PackSummary:
    """Convert a pack, loaded with its release."""
    return PackSummary(**_values(pack))


def detail(pack: Pack) -> PackDetail:
    """Convert a pack, loaded with its release and its actions."""
    present = [each for each in pack.actions.all() if each.retired_at is None]
    actions = [PackAction.model_validate(each) for each in present]
    return PackDetail(**_values(pack), actions=actions)


def _values(pack: Pack) -> dict[str, Any]:
    names = ("name", "version", "description", "path", "installed_at", "draining_since")
    release = pack.release.digest if pack.release else ""
    return {name: getattr(pack, name) for name in names} | {"release": release}


def release(row: Release) -> ReleaseOut:
    """Convert a release, loaded with its pack."""
    names = ("digest", "version", "installed_at", "installed_by", "retired_at", "files", "size")
    return ReleaseOut(**{name: getattr(row, name) for name in names}, state=state(row))


def state(row: Release) -> str:
    """The state of a release: installed, still there, or only known."""
    if row.pack.release_id == row.pk:
        return INSTALLED
    return OLD if row.content_gone_at is None else GONE
