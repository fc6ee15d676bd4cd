"""What the admin's first page says of tasks."""

from __future__ import annotations

import pytest
from django.test import Client

from orchestrator.core import clock
from orchestrator.core.authority import Principal
from orchestrator.workflows.admin import overview
from orchestrator.workflows.states import TaskState
from tests.core.admin.pages import page
from tests.factories import make_task, make_template
from tests.principals import ROOT, given, principal

pytestmark = pytest.mark.django_db


def shown(seen_by: Principal) -> dict[str, str]:
    """The numbers of the box, by the state that each leads to."""
    return {
        card.url.rpartition("state=")[2]: card.number
        for _, cards in overview.boxes(clock.now(), seen_by)
        for card in cards
    }


def test_open_tasks_are_counted_by_the_states_that_there_are(admin_client: Client) -> None:
    assert "Open tasks" not in page(admin_client, "admin:index")
    for state in (TaskState.STEPS_IN_PROCESS, TaskState.STEPS_IN_PROCESS, TaskState.COMPLETE):
        make_task(state)
    assert shown(ROOT) == {"steps_in_process": "2"}
    assert "Open tasks" in page(admin_client, "admin:index")


def test_only_tasks_that_one_may_see_are_counted() -> None:
    make_task(TaskState.WAITING_FOR_RETRY, template=make_template("order", namespace="shop"))
    assert shown(principal(given("viewer", namespaces=["shop"]))) == {"waiting_for_retry": "1"}
    assert shown(principal(given("viewer", namespaces=["other"]))) == {}
    assert shown(principal()) == {}
