"""How tests look at the admin's pages."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.test import Client
from django.urls import reverse
from django.utils import timezone

from orchestrator.core.models import (
    Action,
    Execution,
    Worker,
)
from orchestrator.core.states import TERMINAL

SCRIPT = "<script>alert(1)</script>"
ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt;"
EXECUTIONS = "admin:orchestrator_execution_changelist"


def make(action: Action, worker: Worker, status: str = "running", **values: Any) -> Execution:
    """An execution in `status`, with the due times and timestamps that the database asks for."""
    now = timezone.now()
    return Execution.objects.create(
        action=action,
        action_ref=action.ref,
        status=status,
        **{
            "attempt": 1,
            "worker": worker,
            "worker_incarnation": worker.incarnation,
            "timeout_seconds": 60,
            "created_at": now,
            "scheduled_at": now,
            "started_at": now,
            "start_by": now + timedelta(seconds=310),
            "run_deadline_at": now + timedelta(seconds=70),
            "deadline_at": now + timedelta(days=1),
            "ended_at": now if status in TERMINAL else None,
            "reason": "worker_lost" if status in TERMINAL else "",
        }
        | values,
    )


def page(client: Client, name: str, *args: Any, **query: Any) -> str:
    response = client.get(reverse(name, args=args), query)
    assert response.status_code == 200
    return response.content.decode()


def shown(client: Client, **query: Any) -> set[Execution]:
    response = client.get(reverse(EXECUTIONS), query)
    assert response.status_code == 200
    return set(response.context["cl"].result_list)
