"""How tests look at the admin's pages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db.models import Model
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from orchestrator.core.models import (
    Action,
    Execution,
    Worker,
)
from tests.factories import make_execution

SCRIPT = "<script>alert(1)</script>"
ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt;"
EXECUTIONS = "admin:orchestrator_execution_changelist"


def make(action: Action, worker: Worker, status: str = "running", **values: Any) -> Execution:
    """An execution of today: pages look at the clock."""
    return make_execution(status, action=action, worker=worker, now=timezone.now(), **values)


def page(client: Client, name: str, *args: Any, **query: Any) -> str:
    response = client.get(reverse(name, args=args), query)
    assert response.status_code == 200
    return response.content.decode()


def shown(client: Client, **query: Any) -> set[Execution]:
    response = client.get(reverse(EXECUTIONS), query)
    assert response.status_code == 200
    return set(response.context["cl"].result_list)


def select(client: Client, listing: str, verb: str, rows: Iterable[Model], **answers: str) -> str:
    """The page that follows an action on selected rows."""
    data = {"action": verb, "_selected_action": [str(row.pk) for row in rows], **answers}
    response = client.post(reverse(listing), data, follow=True)
    assert response.status_code == 200
    return response.content.decode()
