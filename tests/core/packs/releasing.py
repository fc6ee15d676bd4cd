"""Releases for tests."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from orchestrator.core import packs
from orchestrator.core.models import Release
from orchestrator.core.packs import archives, releases
from tests.core.packs.folder import Folder
from tests.factories import NOW


def install(path: Path, *, now: datetime = NOW, **how: Any) -> packs.InstallReport:
    """Install a folder as `manage.py pack install` does."""
    content = archives.read(path)
    with releases.loaded(content, name=str(path)) as definition:
        return packs.install(definition, content=content, now=now, **how)


def release_of(report: packs.InstallReport) -> Release:
    return Release.objects.get(digest=report.release)


def shop(folder: Folder, version: int, **schema: Any) -> None:
    """Write one version of a pack with an action in Python."""
    folder.write("pack.yaml", f'name: net\nversion: "{version}.0"\n')
    folder.write("work.py", f"def say(**given):\n    return {{'version': {version}}}\n")
    parameters = {"type": "object", "properties": {"n": {"type": "integer"}}} | schema
    folder.action("say", runtime="python", entry_point="net.work:say", parameters=parameters,
                  timeout_seconds=10 * version)  # fmt: skip
