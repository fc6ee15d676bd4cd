"""An action to request, a worker, a pack to write, and a broker with all queues."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.core import clock, topology
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


@pytest.fixture
def queues(channel: Any) -> Any:
    """A channel of a broker that has every queue."""
    topology.declare(channel, [*topology.shared_queues(), *topology.worker_queues(7)])
    return channel
