"""What is done by a page is in the audit: once, and with its permission."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.access.audit.models import AuditEvent
from orchestrator.core.models import Action, Worker
from tests.automation import play
from tests.factories import make_execution

Send = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def send(admin_client: Client) -> Send:
    """Send a form, and return what the audit has of it."""

    def send_one(name: str, *args: Any, answer: int = 302, **form: str) -> list[tuple[Any, ...]]:
        before = AuditEvent.objects.order_by("pk").values_list("pk", flat=True).last() or 0
        response = admin_client.post(reverse(f"console:{name}", args=args), form)
        assert response.status_code == answer
        events = AuditEvent.objects.filter(pk__gt=before).order_by("pk")
        assert {event.actor for event in events} <= {"user:admin"}
        return [(each.permission, each.object_kind, each.object_id) for each in events]

    return send_one


def test_order_to_a_worker(send: Send, worker: Worker) -> None:
    told = send("order", "w1", act="cordon", reason="new disk")
    assert told == [("workers.order", "workers", "w1")]


def test_cancel_of_an_execution(send: Send, action: Action) -> None:
    execution = make_execution("requested", action=action)
    told = send("execution-act", execution.pk, act="cancel", reason="not needed")
    assert told == [("executions.cancel", "executions", str(execution.pk))]


def test_line_of_the_journal_is_the_event(send: Send) -> None:
    rule = play.make_rule("shop.ship")
    told = send("rule_act", rule.ref, act="disable", reason="too many")
    assert len(told) == 1


@pytest.mark.parametrize(
    "form",
    [
        {"act": "cordon", "reason": ""},
        {"act": "retire", "reason": "it is up, so this is refused"},
    ],
)
def test_what_was_refused_for_what_it_says_is_no_event(
    send: Send, worker: Worker, form: dict[str, str]
) -> None:
    assert send("order", "w1", **form) == []


def test_order_to_nobody_is_no_event(send: Send) -> None:
    assert send("order", "w9", answer=404, act="cordon", reason="new disk") == []
