"""An action to request, a worker, and a pack to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.core import clock
from orchestrator.core.models import Action, Worker
from tests.core.api.client import SCHEMA
from tests.core.packs.folder import Folder
from tests.factories import make_action, make_worker


@pytest.fixture
def action() -> Action:
    return make_action(parameters_schema=SCHEMA)


@pytest.fixture
def worker() -> Worker:
    """A worker that is up by the database's clock."""
    return make_worker(now=clock.now(), incarnation=3, labels={"zone": "a"}, host="node-1")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """The folder of a pack, which has no action yet."""
    return Folder(tmp_path / "net")
