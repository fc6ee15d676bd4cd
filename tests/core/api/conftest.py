"""A caller with a token, an action to request, and a worker."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.access import tokens
from orchestrator.core import clock, executions
from orchestrator.core.models import Action, Execution, Pack, Worker
from tests.core.api.client import NOW, SCHEMA, Caller


@pytest.fixture
def action() -> Action:
    pack = Pack.objects.create(name="core", version="1", path="/nowhere", installed_at=NOW)
    return Action.objects.create(
        pack=pack,
        ref="core.echo",
        runtime="python",
        entry_point="actions:echo",
        parameters_schema=SCHEMA,
        updated_at=NOW,
    )


@pytest.fixture
def worker() -> Worker:
    return Worker.objects.create(
        name="w1", status="active", capacity=4, runtimes=["python"], heartbeat_at=clock.now()
    )


@pytest.fixture
def token() -> str:
    return tokens.create(name="ci", now=NOW)[1]


@pytest.fixture
def caller(token: str) -> Caller:
    return Caller(token)


@pytest.fixture
def request_one(action: Action):
    def request(**values: Any) -> Execution:
        new = executions.NewExecution(action_ref=action.ref, **values)
        return executions.request(new, requested_by="test", now=clock.now())

    return request
