"""What went into work, or came out of it, is `***` in the admin and in the terminal for who may not
read it. `test_matrix` has the API."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.core.models import Execution
from tests import commands
from tests.principals import given, service, staff
from tests.security import world
from tests.security.world import CANARY, SHOP, World

pytestmark = pytest.mark.django_db


@pytest.fixture
def there() -> World:
    made = world.make()
    Execution.objects.filter(pk=made.execution.pk).update(result={"message": CANARY})
    return made


@pytest.fixture
def at_terminal(settings: Any) -> Any:
    """Commands act with these grants."""

    def act(*given_to_it: Any) -> None:
        identity = service("terminal", *given_to_it)
        settings.MUSTER = replace(settings.MUSTER, command_identity=str(identity))

    return act


def pages(there: World) -> dict[str, Any]:
    """The URLs of the admin that show something of the shop."""
    rows = {
        "orchestrator_execution": there.execution,
        "orchestrator_action": there.action,
        "orchestrator_dlqentry": there.entries["task"],
        "workflows_task": there.task,
        "workflows_step": there.step,
    }
    urls = {
        f"{name} page": reverse(f"admin:{name}_change", args=[r.pk]) for name, r in rows.items()
    }
    lists = [*rows, "orchestrator_investigationqueue"]
    return urls | {f"{name} list": reverse(f"admin:{name}_changelist") for name in lists}


def with_canary(client: Client, there: World) -> set[str]:
    """The pages that show a payload; each is there for this user."""
    found = set()
    for name, url in pages(there).items():
        response = client.get(url)
        assert response.status_code == 200, name
        if CANARY in response.content.decode():
            found.add(name)
    return found


def test_admin_shows_no_payload_to_who_may_not_read_it(there: World) -> None:
    assert with_canary(staff("ada", given("operator")), there) == set()


def test_admin_shows_payloads_of_the_scope_to_who_may_read_them(there: World) -> None:
    shop = staff("ada", given("viewer"), given("payloads.read", packs=["shop"]))
    assert with_canary(shop, there) == {"orchestrator_execution page", "orchestrator_action page"}
    tasks = staff("bob", given("viewer"), given("payloads.read", namespaces=["shop"]))
    assert with_canary(tasks, there) == {
        "orchestrator_dlqentry page", "orchestrator_dlqentry list", "workflows_task page",
        "workflows_step page", "workflows_step list", "orchestrator_investigationqueue list",
    }  # fmt: skip


def shown(there: World) -> dict[str, list[str]]:
    """The commands that show something of the shop."""
    task, entries = str(there.task.pk), there.entries
    return {
        "execution": ["execution", "show", str(there.execution.pk)],
        "executions": ["execution", "list"],
        "task": ["task", "show", task],
        "tasks": ["task", "list"],
        "steps": ["task", "steps", task],
        "step": ["task", "step", task, str(there.step.pk)],
        "audit": ["task", "audit", task],
        "entry of a task": ["dlq", "show", str(entries["task"].dlq_entry_uuid)],
        "entry of an execution": ["dlq", "show", str(entries["execution"].dlq_entry_uuid)],
        "letter": ["dlq", "show", str(entries["letter of nobody"].dlq_entry_uuid)],
        "entries": ["dlq", "list"],
        "queue": ["dlq", "queue"],
    }


def printed_with_canary(there: World) -> set[str]:
    """The commands whose tables, or documents, have a payload."""
    found = set()
    for name, arguments in shown(there).items():
        for form in ([], ["--json"]):
            if CANARY in commands.printed(*arguments, *form):
                found.add(" ".join([name, *form]))
    return found


def test_terminal_shows_no_payload_to_who_may_not_read_it(there: World, at_terminal: Any) -> None:
    at_terminal(given("operator"))
    assert printed_with_canary(there) == set()


def test_terminal_shows_payloads_to_who_is_not_limited(there: World) -> None:
    found = printed_with_canary(there)
    for name in ("execution", "task", "step", "entry of a task", "entry of an execution"):
        assert {name, f"{name} --json"} <= found
    assert "letter" in found


def test_terminal_reads_payloads_of_the_scope_only(there: World, at_terminal: Any) -> None:
    at_terminal(given("viewer"), given("payloads.read", packs=SHOP["packs"]))
    assert printed_with_canary(there) == {
        "execution", "execution --json", "entry of an execution", "entry of an execution --json",
    }  # fmt: skip
