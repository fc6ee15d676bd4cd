"""A caller with a token, an action to request, and a worker."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.core import clock, executions
from orchestrator.core.models import Action, Execution


@pytest.fixture
def request_one(action: Action):
    def request(**values: Any) -> Execution:
        new = executions.NewExecution(action_ref=action.ref, **values)
        return executions.request(new, requested_by="test", now=clock.now())

    return request
