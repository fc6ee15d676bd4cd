"""Addresses of pages that nobody's link has."""

from __future__ import annotations

import pytest
from django.test import Client

from orchestrator.core.models import Worker
from tests.automation import play
from tests.factories import make_template


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
