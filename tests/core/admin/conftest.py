"""An action and a worker, as an operator would find them."""

from __future__ import annotations

import pytest
from django.utils import timezone

from orchestrator.core.models import (
    Action,
    Pack,
    Worker,
)
from tests.core.admin.pages import SCRIPT


@pytest.fixture
def action() -> Action:
    now = timezone.now()
    pack = Pack.objects.create(name="core", version="1.0.0", path="/packs/core", installed_at=now)
    return Action.objects.create(
        pack=pack,
        ref="core.sha256",
        runtime="python",
        entry_point="actions.files:sha256",
        parameters_schema={"type": "object", "title": SCRIPT},
        updated_at=now,
    )


@pytest.fixture
def worker() -> Worker:
    return Worker.objects.create(
        name="w1",
        incarnation=3,
        status="active",
        capacity=4,
        runtimes=["python"],
        labels={"zone": "a"},
        registered_at=timezone.now(),
        heartbeat_at=timezone.now(),
        host="node-1",
        pid=4711,
        version="0.1.0",
    )
