"""The laundry: installed, and begun."""

from __future__ import annotations

import pytest

from orchestrator.core import clock
from orchestrator.workflows import engine, task_templates
from orchestrator.workflows.models import Step, Task, TaskTemplate
from tests.factories import NOW, make_action
from tests.workflows.laundry import DEFINITION


@pytest.fixture
def installed() -> TaskTemplate:
    make_action()
    task_templates.install_templates([DEFINITION], now=NOW)
    return TaskTemplate.objects.get()


@pytest.fixture
def begun(installed: TaskTemplate) -> Task:
    """A task whose first step is enqueued."""
    new = engine.NewTask(
        namespace=installed.namespace,
        name=installed.name,
        version=installed.version,
        context={"shirts": 3, "door": "back"},
    )
    task = engine.request(new, requested_by="ada", now=clock.now())
    engine.advance(task.pk, now=clock.now(), actor="executor")
    task.refresh_from_db()
    return task


@pytest.fixture
def enqueued(begun: Task) -> Step:
    """The first step of a task that really runs."""
    return Step.objects.get(task=begun, name="wash")
