"""Addresses of pages that nobody's link has."""

from __future__ import annotations

import pytest
from django.test import Client

from orchestrator.core.models import Worker
from tests.automation import play
from tests.factories import make_action, make_execution, make_template
from tests.principals import given, staff


@pytest.mark.parametrize(
    "address",
    [
        "/console/workers/%00",
        "/console/rules/a%00b",
        "/console/queues/%00",
        "/console/policies/%00",
        "/console/hooks/a/%00",
        "/console/run/%00",
        "/console/templates/a/%00/1",
        "/console/executions?q=a%00b",
        "/console/tasks?correlation=%00",
        "/console/palette?q=%00",
        "/admin/orchestrator/execution/?reason=%00",
        "/admin/orchestrator/dlqentry/?dlq_reason__exact=%00",
        "/admin/orchestrator/worker/?q=a%00b",
        "/admin/orchestrator/execution/?%00=a",
        "/admin/orchestrator/execution/%00/change/",
    ],
)
def test_nul_in_an_address_is_refused(admin_client: Client, address: str) -> None:
    """PostgreSQL has no such text; SQLite, on which this runs, would find nothing."""
    assert admin_client.get(address).status_code == 400
    assert admin_client.post(address).status_code == 400


@pytest.mark.parametrize("number", ["9" * 5_000, "9" * 30, "-1", "x"])
@pytest.mark.parametrize(
    "address",
    [
        "/console/events?trigger={}",
        "/console/executions/complete?q=sta&at={}",
        "/admin/orchestrator/execution/?worker={}",
        "/admin/automation/enforcement/?rule={}",
        "/admin/workflows/task/?template={}",
    ],
)
def test_number_of_any_length_is_answered(
    admin_client: Client, worker: Worker, address: str, number: str
) -> None:
    play.make_rule()
    make_template()
    assert admin_client.get(address.format(number)).status_code == 200


@pytest.mark.parametrize("page", ["run", "palette", "catalogue"])
def test_thousands_of_words_are_no_thousands_of_conditions(admin_client: Client, page: str) -> None:
    """SQLite refuses a statement with more than a thousand; PostgreSQL takes its time."""
    assert admin_client.get(f"/console/{page}", {"q": "a " * 2_000}).status_code == 200


@pytest.mark.django_db
@pytest.mark.parametrize("is_scoped", [True, False])
def test_what_is_not_for_the_user_is_no_link(worker: Worker, is_scoped: bool) -> None:
    rule = play.make_rule("till.ship")
    play.answer(7)
    execution = make_execution("failed", action=make_action("till.charge"), worker=worker)
    client = staff("eve", given("viewer", **({"packs": ["till"]} if is_scoped else {})))
    for page, leads_to in (
        (f"/console/executions/{execution.pk}", "/console/workers/"),
        (f"/console/rules/{rule.ref}", "/console/triggers/"),
        (f"/console/rules/{rule.ref}", "/console/events/"),
        ("/console/enforcements", "/console/events/"),
    ):
        response = client.get(page)
        assert response.status_code == 200
        assert (f'href="{leads_to}' in response.content.decode()) is not is_scoped
