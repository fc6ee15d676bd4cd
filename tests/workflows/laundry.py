"""A template of two steps, with a secret in its context and one in a result."""

from __future__ import annotations

from typing import Any

from orchestrator.workflows.models import Task
from orchestrator.workflows.states import TaskState
from tests.factories import make_task, make_template

REF = "tests/laundry/1.0.0"
DEFINITION: dict[str, Any] = {
    "name": "laundry",
    "namespace_name": "tests",
    "version": "1.0.0",
    "input_schema": {
        "type": "object",
        "properties": {"shirts": {"type": "integer"}, "door": {"type": "string", "secret": True}},
    },
    "steps": [
        {
            "name": "wash",
            "action": "core.echo",
            "result_schema": {"properties": {"pin": {"type": "integer", "writeOnly": True}}},
        },
        {"name": "dry", "action": "core.echo", "dependencies": ["wash"]},
    ],
}


def make_laundry(state: str = TaskState.STEPS_IN_PROCESS, **values: Any) -> Task:
    """A task of it that came into `state` a moment ago: nothing of it has run."""
    template = make_template("laundry", definition=DEFINITION)
    return make_task(state, template=template, **values)
